// What several views share: the shape of the data, addresses, colours.

export type Where = [string, string][];
export type Params = Record<string, string | number | undefined>;
export interface Estimate { value: number | null; low: number | null; high: number | null; text: string; brief: string; shade: number | null }
export interface Values { ours: Estimate | null; again?: Estimate | null; published?: Estimate | null }
export interface Cell {
  panel: string; series: string; x: string; where: Where; stored?: boolean; own: boolean; runs: number; solved: number | null;
  diverged: number; criterion?: boolean; values: Record<string, Values>; verdict: string; q?: string; note: string;
}
export interface Metric {
  name: string; title: string; brief_title: string; scale: "linear" | "log"; limits: [number, number] | null;
  floor: number | null; ceiling: number | null; meaning: string; map: boolean; ticks: [number, string][];
}
export interface Look { colour: string; marker: string }
export interface Size { name: string; finished: number; total: number }
export interface Choice { name: string; values: { value: string; text: string }[] }
export interface CurveSet { steps?: number[]; test?: (number | null)[]; validation?: (number | null)[]; sparsity?: (number | null)[] }
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Data = any;

const embedded = document.getElementById("data");
export const saved: Data | null = embedded ? JSON.parse(embedded.textContent ?? "null") : null;

/** The address of a view; none in a saved file, which holds one view alone. */
export function address(view: string, params: Params = {}, where: Where = []): string | undefined {
  if (saved) return undefined;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== "") query.set(name, String(value));
  for (const [name, value] of where) query.append(`is.${name}`, value);
  const text = query.toString();
  return (view === "start" ? "/" : `/${view}`) + (text ? `?${text}` : "");
}

/** The folder that an address is about, so that links stay in it. */
export function source(query: string): string {
  return new URLSearchParams(query).get("source") ?? "";
}

export function filtersOf(filters: Record<string, string[]>): Where {
  return Object.entries(filters).flatMap(([name, values]) => values.map((value): [string, string] => [name, value]));
}

const RATES = ["#fff6e3", "#f6cf8b", "#8fbf9f", "#2d8a83", "#12546b"];
const BALANCE = ["#7d1e4e", "#d1495b", "#fbf3ea", "#2d8a83", "#12546b"];

function blend(stops: string[], at: number): string {
  const place = Math.min(1, Math.max(0, at)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const part = (hex: string, i: number) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mix = [0, 1, 2].map((i) => Math.round(part(stops[low], i) + (place - low) * (part(stops[low + 1], i) - part(stops[low], i))));
  return `rgb(${mix.join(" ")})`;
}

/** From bad (0) to good (1). */
export const shade = (at: number) => blend(RATES, at);
/** Ink that is read on that shade. */
export const inkOn = (at: number) => (at < 0.66 ? "#1b1f25" : "#fefeff");
/** From -1 through 0 to 1. */
export const balance = (at: number) => blend(BALANCE, (at + 1) / 2);
export const inkOnBalance = (at: number) => (Math.abs(at) > 0.45 ? "#fefeff" : "#1b1f25");

/** Whether a curve has a number at all. */
export const hasValues = (curve?: (number | null)[]) => Boolean(curve?.some((value) => value !== null));

/** The measure of tasks without a criterion of success, which have no other. */
export const ERROR = "test_error";
export const measures = (metric: Metric, cell: Cell) => cell.criterion === undefined || cell.criterion === (metric.name !== ERROR);

/** 1 run, 2 runs */
export const runs = (count: number) => `${count.toLocaleString("en")} ${count === 1 ? "run" : "runs"}`;

/** 1 agrees, 2 agree */
export const counted = (count: number, word: string) =>
  `${count.toLocaleString("en")} ${count === 1 ? word : (({ agrees: "agree", differs: "differ" }) as Record<string, string>)[word] ?? word}`;

export const verdictClass = (word: string) =>
  ({ agrees: "good", holds: "good", "same order": "good", solved: "good", differs: "bad", "does not hold": "bad", "other order": "bad",
     "not solved": "bad", diverged: "warn", "too few runs": "warn", "too few": "warn", "cannot be told": "warn", "no clear order": "warn" })[word] ?? "faint";

/** 10⁻⁵ for whole powers of ten, else three digits. */
export function power(value: number): string {
  const exponent = Math.log10(value);
  if (Math.abs(exponent - Math.round(exponent)) > 1e-9) return value.toPrecision(3);
  const digits = String(Math.round(exponent)).replace(/./g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[+sign]));
  return Math.abs(exponent) <= 1.5 ? String(+value.toPrecision(2)) : `10${digits}`;
}

export const thousands = (value: number) =>
  value >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : value >= 1e3 ? `${+(value / 1e3).toPrecision(3)}k` : String(value);

/** A colour of the style sheet, for what is drawn on a canvas. */
export const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
