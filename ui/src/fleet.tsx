// Screen 1: who needs you, what is stale and why, the groups, the nodes.
import { computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { apply, has, toggle, write } from "./filter";
import { command, useKeys } from "./keys";
import { trouble } from "./link";
import { Bar, Command, Rows, Section, Sign, StateWord, Waiting, classOf } from "./parts";
import { Link, filterIn, go, linkTo, path, query } from "./router";
import { causes, fleet, groups, nodes, order, there, waitsForPeople, whole } from "./store";
import { ago, count, number, oneLine, person, some, stamp, visible, word } from "./text";
import type { NodeCause, NodeRow } from "./types";

const filter = computed(() => filterIn(query.value));
const shown = computed(() => apply(nodes.value, filter.value));
const at = signal(-1);
const chosen = signal<ReadonlySet<string>>(new Set());
const rowHeight = 32;
const few = 12; // causes and groups that a section shows before somebody asks for all

const setFilter = (text: string, replace = false): void => {
  at.value = -1;
  go(linkTo.fleet(text), replace);
};

const commandOf = (text: string): string => {
  const states = order.filter((s) => has(text, write("state", s)));
  return states.length ? `tutti node list --state ${word(states.join(","))}` : "tutti node list";
};

export const Fleet = () => {
  const text = filter.value;
  useEffect(() => { command.value = commandOf(text); }, [text]);
  useEffect(() => { document.title = titleOf(); }, [fleet.value]);
  useKeys([
    { key: "j", what: "next node", do: () => (at.value = Math.min(at.value + 1, shown.value.length - 1)) },
    { key: "k", what: "node before", do: () => (at.value = Math.max(at.value - 1, 0)) },
    { key: "Enter", what: "open the node", do: () => { const n = shown.value[at.value]; if (n) go(linkTo.node(n.node)); } },
    { key: "x", what: "select the node, for one command", do: () => { const n = shown.value[at.value]; if (n) choose(n.node); } },
    { key: "Escape", what: "no filter, no selection", do: () => { chosen.value = new Set(); setFilter(""); } },
  ]);
  const f = fleet.value;
  if (!f) return <><h1 class="hidden">Fleet</h1>{!trouble.value && <Waiting what="The server counts its nodes" />}</>;
  if (whole.value && f.nodes === 0) return <Empty />;
  return (
    <>
      <h1 class="hidden">Fleet {visible(f.fleet)}</h1>
      {f.full && <p class="problem" role="alert">{oneLine(f.full)}</p>}
      <CountsLine />
      <Causes />
      <Groups />
      <Nodes />
    </>
  );
};

const titleOf = (): string => {
  const bad = waitsForPeople.reduce((n, s) => n + (fleet.value?.states?.[s] ?? 0), 0);
  return `${bad ? `(${bad}) ` : ""}${visible(fleet.value?.fleet) || "Fleet"} · Tutti`;
};

const Empty = () => (
  <Section title="No nodes yet">
    <h1 class="hidden">Fleet</h1>
    <p>A machine becomes a node with a token. Make one for the machine, then join it:</p>
    <p><Command text="tutti token create --name web-01" /></p>
  </Section>
);

const CountsLine = () => {
  const f = fleet.value;
  if (!f) return null;
  const one = (key: string, value: string, n: number | undefined, label: ComponentChildren) =>
    n ? (
      <li key={value}>
        <Link to={linkTo.fleet(toggle(filter.value, key, value))} class={has(filter.value, write(key, value)) ? "on" : ""}>
          <b>{number(n)}</b> {label}
        </Link>
      </li>
    ) : null;
  return (
    <ul class="counts" aria-label="Nodes by state">
      {[...order].reverse().map((s) => one("state", s, f.states?.[s], <span class={classOf(s)}><Sign state={s} /> {s}</span>))}
      <li class="gap" aria-hidden="true" />
      {one("is", "running", f.running, "running")}
      {one("is", "away", f.away, "away")}
      {one("is", "paused", f.paused, "paused")}
      {one("is", "conflicted", f.conflicted, "with two machines")}
    </ul>
  );
};

const Causes = () => {
  const all = causes.value;
  const need = all.filter((c) => waitsForPeople.includes(c.state));
  const rest = all.filter((c) => !waitsForPeople.includes(c.state));
  return (
    <>
      {need.length > 0 && <CauseList title="Needs you" list={need} />}
      {rest.length > 0 && <CauseList title="Stale, by cause" list={rest} />}
      {all.length === 0 && whole.value && <p class="calm">Every node is good.</p>}
    </>
  );
};

const CauseList = ({ title, list }: { title: string; list: NodeCause[] }) => {
  const [all, setAll] = useState(false);
  return (
    <Section title={title}>
      <ul class="causes">{(all ? list.slice(0, 100) : list.slice(0, few)).map((c) => <CauseLine key={c.id} c={c} />)}</ul>
      {list.length > few && (
        <button type="button" onClick={() => setAll(!all)}>{all ? "Show fewer" : `Show all ${number(list.length)}`}</button>
      )}
    </Section>
  );
};

const CauseLine = ({ c }: { c: NodeCause }) => {
  const first = c.some[0];
  const who = c.by ? `${c.change || c.code ? "by " : ""}${person(c.by)}, ${stamp(c.at, there.value)}` : "";
  return (
    <li>
      <StateWord state={c.state} />
      <span class="many">
        {c.nodes === 1 && first
          ? <Link to={linkTo.node(first)}>{visible(first)}</Link>
          : <Link to={linkTo.fleet(write("cause", c.id))} title={some(c.some, c.nodes)}>{count(c.nodes, "node")}</Link>}
      </span>
      <span class="text">
        {oneLine(c.text)}
        {c.nodes > 1 && <span class="names">{some(c.some, c.nodes)}</span>}
      </span>
      <span class="quiet when">
        {who && <span>{who}</span>}
        {c.since && <span>since {stamp(c.since, there.value)} ({ago(c.since, there.value)})</span>}
        {c.next && <span>{oneLine(c.next)}</span>}
      </span>
      {first && <Link to={linkTo.node(first)} class="why" label={`why is ${visible(first)} ${visible(c.state)}`}>why</Link>}
    </li>
  );
};

const Groups = () => {
  const [all, setAll] = useState(false);
  const list = groups.value.filter((g) => g.nodes > 0);
  if (list.length === 0) return null;
  const most = list[0]?.nodes ?? 1;
  return (
    <Section title="Groups">
      <ul class="groups">
        {(all ? list.slice(0, 100) : list.slice(0, few)).map((g) => (
          <li key={g.group}>
            <Link to={linkTo.fleet(toggle(filter.value, "group", g.group))} title={visible(g.group)} class={has(filter.value, write("group", g.group)) ? "on" : ""}>
              {visible(g.group)}
            </Link>
            <b>{number(g.nodes)}</b>
            <Bar states={g.states} nodes={g.nodes} of={most} />
            <span class="quiet">
              {order.filter((s) => s !== "good" && g.states?.[s]).map((s) => `${number(g.states?.[s] ?? 0)} ${s}`).join(", ") || "all good"}
            </span>
          </li>
        ))}
      </ul>
      {list.length > few && (
        <button type="button" onClick={() => setAll(!all)}>{all ? "Show fewer" : `Show all ${number(list.length)} groups`}</button>
      )}
    </Section>
  );
};

const choose = (node: string): void => {
  const next = new Set(chosen.value);
  if (!next.delete(node)) next.add(node);
  chosen.value = next;
};

const Nodes = () => (
  <Section title="Nodes" aside={<NodesAside />}>
    {chosen.value.size > 0 && <Chosen />}
    <Rows items={shown.value} height={rowHeight} label="Nodes" at={at.value} head={(
      <div class="row head" role="row" aria-rowindex={1}>
        <span role="columnheader">State</span><span role="columnheader">Node</span><span role="columnheader">Why</span>
        <span role="columnheader">Since</span><span role="columnheader">Now</span>
      </div>
    )} row={(n, i) => <NodeLine key={n.node} n={n} i={i} />} />
    {shown.value.length === 0 && whole.value && <p class="quiet" role="status">No node fits the filter.</p>}
  </Section>
);

const NodesAside = () => (
  <>
    <label class="filter">
      <span class="hidden">Filter nodes</span>
      <input
        id="filter" type="search" value={filter.value} placeholder="for example state:stale group:web 04" autocomplete="off" spellcheck={false}
        onInput={(e) => { if (path.value === "/ui/") setFilter(e.currentTarget.value, true); }}
      />
    </label>
    <span class="quiet" role="status">{number(shown.value.length)} of {number(fleet.value?.nodes ?? 0)}</span>
  </>
);

// Chosen is one command for all selected nodes.
const Chosen = () => {
  const names = [...chosen.value].slice(0, 100).map((n) => JSON.stringify(n)).join(",");
  const text = `tutti puppet status --on ${word(`node in [${names}]`)}`;
  return (
    <p class="chosen">
      <b>{number(chosen.value.size)} selected</b> <Command text={text} />
      <button type="button" onClick={() => (chosen.value = new Set())}>none</button>
    </p>
  );
};

// nowOf says in few words what the node does now.
const nowOf = (n: NodeRow): string => {
  if (n.conflicted) return "two machines";
  if (n.active) return `${n.phase || "runs"}${n.active_job ? ", " + n.active_job : ""}`;
  if (n.held_by) return "held by " + n.held_by;
  if (!n.connected) return "away";
  if (n.paused) return "paused";
  return n.observed ? "observed" : "";
};

const NodeLine = ({ n, i }: { n: NodeRow; i: number }) => (
  <div
    class={"row" + (i === at.value ? " at" : "") + (chosen.value.has(n.node) ? " chosen" : "")} role="row" aria-rowindex={i + 2}
    aria-selected={chosen.value.has(n.node)} onClick={() => (at.value = i)}
  >
    <span role="cell"><StateWord state={n.state} /></span>
    <span role="cell"><Link to={linkTo.node(n.node)}>{visible(n.node)}</Link></span>
    <span role="cell" class="cut" title={visible(n.why)}>{oneLine(n.why)}</span>
    <span role="cell" class="quiet">{ago(n.since, there.value)}</span>
    <span role="cell" class="quiet cut" title={visible(n.trouble || n.paused || n.conflicted)}>{oneLine(nowOf(n))}</span>
  </div>
);
