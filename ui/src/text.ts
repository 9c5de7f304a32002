// Texts for people. Every text of a node goes through `visible`.
import type { Cause, Failure, Place, Query, RunView } from "./types";

// A control character or a character that changes the direction of writing is shown as its number, as the command line does.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const visible = (text: string | undefined): string =>
  (text ?? "").replace(hidden, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

export const oneLine = (text: string | undefined): string => visible(text).replace(/\s+/g, " ").trim();

export const number = (n: number): string => n.toLocaleString("en-GB");

export const count = (n: number, what: string): string => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

const two = (n: number): string => String(n).padStart(2, "0");

export const clock = (ms: number): string => {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
};

// The server writes a time that it does not know as the year 1.
const known = (at: string | undefined): at is string => !!at && !at.startsWith("0001-");

// stamp is a time of day, with the date if it is not today.
export const stamp = (at: string | undefined, now: number): string => {
  if (!known(at)) return "";
  const d = new Date(at);
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  return d.toDateString() === new Date(now).toDateString() ? clock(d.getTime()) : `${day} ${two(d.getHours())}:${two(d.getMinutes())}`;
};

export const ago = (at: string | undefined, now: number): string => {
  if (!known(at)) return "";
  const s = Math.max(0, Math.floor((now - Date.parse(at)) / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)} days`;
};

export const person = (by: string | undefined): string => visible(by).replace(/^operator:/, "").replace(/^node:/, "node ");

export const question = (q: Query): string => {
  switch (q.kind) {
    case "collect": return `${visible(q.type)} <<| ${q.filter ? filterText(q.filter) + " " : ""}|>>`;
    case "groups": return "the list of its groups";
    case "enc": return "the answer of the ENC";
    case "hiera": if (!q.key) return "the hiera level";
  }
  return `${visible(q.kind)} "${visible(q.key)}"`;
};

// filterText writes the normal form of a filter, [operator, left, right], as Puppet does.
const filterText = (f: unknown): string => {
  if (!Array.isArray(f) || f.length !== 3) return visible(typeof f === "string" ? f : JSON.stringify(f));
  const [op, left, right] = f as [string, unknown, unknown];
  if (op === "and" || op === "or") return `(${filterText(left)} ${op} ${filterText(right)})`;
  return `${filterText(left)} ${visible(op)} ${visible(JSON.stringify(right))}`;
};

export const place = (p: Place | undefined): string => {
  if (!p?.file) return p?.resource ? `in ${visible(p.resource)}` : "";
  const at = `${visible(p.file)}${p.line ? ":" + p.line : ""}`;
  return p.resource ? `${at}, in ${visible(p.resource)}` : at;
};

export const failure = (f: Failure): string => {
  const at = f.file && !f.message.includes(f.file) ? ` (${visible(f.file)}${f.line ? ":" + f.line : ""})` : "";
  return `${f.resource ? visible(f.resource) + ": " : ""}${oneLine(f.message)}${at}`;
};

export const outcome = (r: RunView): string => {
  if (r.proved) return "proved it good";
  if (r.stopped) return "stopped at its gate";
  if (!r.outcome) return r.phase ? visible(r.phase) : "has not ended";
  return r.reason ? `${visible(r.outcome)}: ${visible(r.reason)}` : visible(r.outcome);
};

export const change = (c: Cause): string => {
  if (c.unset) return `value "${visible(c.key)}" unset`;
  if (c.key) return `value "${visible(c.key)}" set`;
  if (c.enc) return "another answer stored";
  if (c.groups) return "its groups changed";
  return "exports changed";
};

// some is a short list of names.
export const some = (names: string[] | undefined, all?: number): string => {
  const list = (names ?? []).slice(0, 5).map(visible);
  const rest = (all ?? names?.length ?? 0) - list.length;
  return list.join(", ") + (rest > 0 ? ` + ${number(rest)}` : "");
};

export const digest = (d: string | undefined): string => visible(d).replace(/^sha256:/, "").slice(0, 12);

// word writes a text as one word of a shell, on one line.
export const word = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : "'" + visible(text).replaceAll("\n", "\\u000a").replaceAll("\t", "\\u0009").replaceAll("'", "'\\''") + "'";
