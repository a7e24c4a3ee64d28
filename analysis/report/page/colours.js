// Colours, dashes and markers: told apart by readers with any colour vision, and without colour.

const COLOURS = 7;
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const MARKERS = ["circle", "square", "triangle", "diamond", "cross", "ring"];

// Cividis (Nuñez, Anderton & Renslow 2018), lightness rising evenly for every colour vision.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
// Blue over grey to orange, for values on both sides of zero.
const DIVERGING = ["#08519c", "#4a90c9", "#b3cde3", "#f2f0eb", "#fdc88d", "#e6842a", "#9c4a00"];

export function styleOf(slot) {
  return {
    colour: `var(--series-${(slot % COLOURS) + 1})`,
    dash: DASHES[slot % DASHES.length],
    marker: MARKERS[slot % MARKERS.length],
  };
}

// A colour for the rank of an ordered thing, away from the end that the background swallows.
export function rankStyle(rank, slot) {
  const share = isDark() ? 0.28 + 0.72 * rank : 0.82 * (1 - rank);
  return { ...styleOf(slot), colour: sequential(share), dash: "" };
}

export function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

export function sequential(share) {
  return mixed(CIVIDIS, share);
}

export function diverging(share) {
  return mixed(DIVERGING, share);
}

function mixed(anchors, share) {
  const place = Math.min(1, Math.max(0, share)) * (anchors.length - 1);
  const below = Math.min(anchors.length - 2, Math.floor(place));
  const channels = [1, 3, 5].map((start) => {
    const [low, high] = [below, below + 1].map((i) => parseInt(anchors[i].slice(start, start + 2), 16));
    return Math.round(low + (high - low) * (place - below));
  });
  return `rgb(${channels.join(",")})`;
}
