// The filter of the list of nodes: words like state:stale, group:web, cause:ID, is:away, and parts of names.
import type { NodeRow } from "./types";

export interface Term { key: string; value: string }

const words = (text: string): string[] => text.match(/[^\s"]*"[^"]*"?|\S+/g) ?? [];

export const parse = (text: string): Term[] =>
  words(text).map((raw) => {
    const parts = /^(?:(state|group|cause|outcome|job|is|environment):)?(.*)$/s.exec(raw);
    return { key: parts?.[1] ?? "", value: (parts?.[2] ?? "").replaceAll('"', "").toLowerCase() };
  });

export const write = (key: string, value: string): string => key + ":" + (/[\s"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value);

// has reports whether a filter contains a term, and toggle adds or removes it.
export const has = (text: string, term: string): boolean => words(text).includes(term);
export const toggle = (text: string, key: string, value: string): string => {
  const term = write(key, value);
  const rest = words(text).filter((t) => t !== term && !t.startsWith(key + ":"));
  return [...rest, ...(has(text, term) ? [] : [term])].join(" ");
};

const is: Record<string, (n: NodeRow) => boolean> = {
  away: (n) => !n.connected,
  paused: (n) => !!n.paused,
  running: (n) => !!n.active,
  conflicted: (n) => !!n.conflicted,
  observed: (n) => !!n.observed,
};

const fits = (n: NodeRow, t: Term): boolean => {
  switch (t.key) {
    case "state": return n.state === t.value;
    case "group": return (n.groups ?? []).some((g) => g.toLowerCase() === t.value);
    case "cause": return n.cause?.toLowerCase() === t.value;
    case "outcome": return (n.outcome ?? "") === t.value;
    case "job": return [n.active_job, n.last_job, n.held_by].some((j) => j?.toLowerCase() === t.value);
    case "environment": return n.environment?.toLowerCase() === t.value;
    case "is": return is[t.value]?.(n) ?? false;
  }
  return n.node.toLowerCase().includes(t.value) || (n.why ?? "").toLowerCase().includes(t.value);
};

export const apply = (nodes: NodeRow[], text: string): NodeRow[] => {
  const terms = parse(text);
  return terms.length ? nodes.filter((n) => terms.every((t) => fits(n, t))) : nodes;
};
