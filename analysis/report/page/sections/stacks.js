// Encoders against decoders: the models by kind, and the mean of each kind, by relative depth.

import { styleOf } from "../colours.js";
import { cutCurves } from "../curves.js";
import { Figure } from "../figure.js";
import { counted } from "../format.js";
import { commonSample } from "../samples.js";
import { shownModels } from "../state.js";
import { alongDepth, depthTitle, linesContent } from "../views.js";

const KINDS = ["encoder", "decoder"];
const GRID = 21;

export function stackSection(contents, state) {
  const present = KINDS.filter((kind) => contents.models.some((model) => model.kind === kind && model.cubes.size));
  if (present.length < KINDS.length) return null;
  const update = () => {
    const { quantity, population, step } = state.values;
    const models = shownModels(contents, state);
    const curves = KINDS.flatMap((kind, slot) => kindCurves(kind, slot, models.filter((model) => model.kind === kind), quantity, { population, step }));
    figure.show(linesContent({
      title: `${quantity.title}: encoders against decoders`,
      quantity,
      curves,
      x: { title: depthTitle("relative depth", models, quantity), kind: "linear" },
      place: `population ${population}, ${step === null ? "last step" : `step ${step}`}`,
      where: `by layer in the population ${population}`,
      along: alongDepth("relative depth"),
    }));
  };
  const hint = "Encoders attend to every token, decoders to earlier ones only. Thick curves are means over models with their standard error; thin ones are the models.";
  const figure = new Figure("", { hint });
  return { id: "stacks", title: "Encoders against decoders", nodes: [figure.node], update };
}

// The mean of a kind first, so that sentences and legends speak of it.
function kindCurves(kind, slot, models, quantity, view) {
  const own = cutCurves(models, quantity, { ...view, along: "relative depth", hue: "model" });
  if (!own.length) return [];
  const style = styleOf(slot);
  if (own.length === 1) return [{ ...own[0], name: `${kind}: ${own[0].name}`, style }];
  const members = own.map((curve) => ({ ...curve, style, thin: true, unnamed: true }));
  return [{ name: `${kind}s, mean of ${counted(own.length, "model")}`, style, points: meanPoints(own, kind) }, ...members];
}

function meanPoints(curves, kind) {
  const points = [];
  const sample = commonSample(curves.flatMap((curve) => curve.points.map((point) => point.sample)));
  for (let i = 0; i < GRID; i += 1) {
    const x = i / (GRID - 1);
    const values = curves.map((curve) => interpolated(curve.points, x)).filter((value) => value !== null);
    if (!values.length) continue;
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    const error = values.length > 1 ? Math.sqrt(squares / (values.length - 1) / values.length) : NaN;
    points.push({ x, y: mean, error, sample, where: { model: `mean of ${values.length} ${kind}s`, "relative depth": x } });
  }
  return points;
}

function interpolated(points, x) {
  const after = points.findIndex((point) => point.x >= x - 1e-9);
  if (after < 0 || (after === 0 && points[0].x > x + 1e-9)) return null;
  if (after === 0) return points[0].y;
  const [left, right] = [points[after - 1], points[after]];
  return left.y + ((right.y - left.y) * (x - left.x)) / (right.x - left.x);
}
