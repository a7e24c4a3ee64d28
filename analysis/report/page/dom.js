// Making elements. Text only ever enters the page as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawing(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null));
  return node;
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") {
      for (const [property, setting] of Object.entries(value)) node.style.setProperty(property, setting);
    } else if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

let lastId = 0;

export function freshId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}
