// Small parts that several screens use.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { copy } from "./keys";
import { order } from "./store";
import { number, visible } from "./text";
import type { Counts, State } from "./types";

// A state has a word, a sign and a colour, so nobody needs to see the colour.
const signs: Record<State, string> = {
  good: "✓", suspect: "~", stale: "↻", waiting: "?", failed: "✕", "never ran": "○",
  unknown: "·", silent: "z", disabled: "–", drifting: "≈",
};
// A state that this page does not know yet looks like `unknown`, and keeps its word.
export const classOf = (s: State): string => "s-" + (Object.hasOwn(signs, s) ? s.replace(" ", "-") : "unknown");
export const Sign = ({ state }: { state: State }) => (
  <span class={"sign " + classOf(state)} aria-hidden="true">{signs[state] ?? "·"}</span>
);
export const StateWord = ({ state }: { state: State }) => (
  <span class={"state " + classOf(state)}><Sign state={state} /> {visible(state)}</span>
);

// Bar draws how many nodes are in which state. Words say the same.
export const Bar = ({ states, nodes, of }: { states: Counts | undefined; nodes: number; of: number }) => {
  const parts = [...order].reverse().filter((s) => states?.[s]);
  let x = 0;
  const scale = nodes ? (1000 * nodes) / Math.max(of, 1) / nodes : 0;
  return (
    <svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img"
      aria-label={parts.map((s) => `${number(states?.[s] ?? 0)} ${s}`).join(", ") || "no nodes"}>
      {parts.map((s) => {
        const w = Math.max((states?.[s] ?? 0) * scale, 3);
        const one = <rect key={s} class={classOf(s)} x={x} y={0} width={w} height={10} />;
        x += w;
        return one;
      })}
    </svg>
  );
};

export const Section = (p: { title: string; class?: string; children: ComponentChildren; aside?: ComponentChildren }) => (
  <section class={p.class}>
    <header class="head"><h2>{p.title}</h2>{p.aside}</header>
    {p.children}
  </section>
);

export const Command = ({ text }: { text: string }) => (
  <span class="command">
    <code data-command={text}>{text}</code>
    <button type="button" aria-label={"copy " + text} title="copy" onClick={() => void copy(text)}>copy</button>
  </span>
);

// Waiting says that something is on its way, but only if it takes long enough to be noticed.
export const Waiting = ({ what }: { what: string }) => {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return <p class="quiet" role="status">{late ? what : "\u00a0"}</p>;
};

export const Problem = ({ text, again }: { text: string; again: () => void }) => (
  <div class="problem" role="alert">
    <p>{text}</p>
    <button type="button" onClick={again}>Try again</button>
  </div>
);

interface RowsProps<T> {
  items: T[]; height: number; label: string; head: ComponentChildren; at: number;
  row: (item: T, index: number) => ComponentChildren;
}

// Rows draws only the rows that can be seen. So a list of 10,000 has as many elements as a list of 30.
export function Rows<T>(p: RowsProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [size, setSize] = useState(480);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const most = (): number => Math.max(el.clientHeight, Math.min(innerHeight, 700)); // the list may grow
    const watch = new ResizeObserver(() => setSize(most()));
    watch.observe(el);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const el = box.current;
    if (!el || p.at < 0) return;
    const y = p.at * p.height;
    if (y < el.scrollTop) el.scrollTop = y;
    else if (y + p.height > el.scrollTop + el.clientHeight) el.scrollTop = y + p.height - el.clientHeight;
  }, [p.at]);
  const spare = 4;
  const first = Math.max(0, Math.min(Math.floor(top / p.height) - spare, p.items.length - 1));
  const shown = p.items.slice(first, first + Math.ceil(size / p.height) + 2 * spare);
  return (
    <div role="table" aria-label={p.label} aria-rowcount={p.items.length + 1}>
      <div role="rowgroup">{p.head}</div>
      <div class="rows" role="rowgroup" ref={box} tabIndex={0} aria-label={p.label} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
        <div class="all" role="presentation" style={{ height: `${Math.max(p.items.length * p.height, 1)}px` }}>
          <div class="shown" role="presentation" style={{ transform: `translateY(${first * p.height}px)` }}>
            {shown.map((item, i) => p.row(item, first + i))}
          </div>
        </div>
      </div>
    </div>
  );
}
