// Screen 2: why a node is in its state, and what happens next.
import { useEffect, useState } from "preact/hooks";
import { command, useKeys } from "./keys";
import { call } from "./link";
import { Command, Problem, Section, StateWord, Waiting } from "./parts";
import { Link, go, linkTo } from "./router";
import { causeOf, nodeOf, there } from "./store";
import { ago, change, clock, count, digest, failure, number, oneLine, outcome, person, place, question, some, stamp, visible, word } from "./text";
import type { Cause, NodeDetail, NodeExplanation, RunView, WaitedFor } from "./types";

interface Known { explanation: NodeExplanation; detail: NodeDetail; at: number }

// useNode asks again when the row of the node in the stream has changed.
const useNode = (name: string) => {
  const [known, setKnown] = useState<Known | null>(null);
  const [problem, setProblem] = useState("");
  const [tries, setTries] = useState(0);
  const row = nodeOf(name);
  const version = JSON.stringify([row, row?.cause && causeOf(row.cause)]);
  useEffect(() => {
    const stop = new AbortController();
    void (async () => {
      try {
        const [explanation, detail] = await Promise.all([
          call<NodeExplanation>("explain/node", name, stop.signal), call<NodeDetail>("nodes/show", name, stop.signal),
        ]);
        setKnown({ explanation, detail, at: Date.now() });
        setProblem("");
      } catch (e) {
        if (!stop.signal.aborted) setProblem(e instanceof Error ? e.message : String(e));
      }
    })();
    return () => stop.abort();
  }, [name, version, tries]);
  return { known, problem, again: () => setTries(tries + 1) };
};

export const Node = ({ name }: { name: string }) => {
  const { known, problem, again } = useNode(name);
  useEffect(() => { command.value = `tutti explain node ${word(name)}`; }, [name]);
  useKeys([{ key: "Escape", what: "back to the fleet", do: () => go(linkTo.fleet()) }]);
  const state = known?.explanation.standing.state;
  useEffect(() => { document.title = `${visible(name)}${state ? " " + state : ""} · Tutti`; }, [name, state]);
  if (!known) return problem ? <><h1>{visible(name)}</h1><Problem text={oneLine(problem)} again={again} /></> : <><h1>{visible(name)}</h1><Waiting what="The server explains the node" /></>;
  return (
    <>
      {problem && <Problem text={`${oneLine(problem)} (the page is as of ${clock(known.at)})`} again={again} />}
      <div class={problem ? "old" : ""}>
        <Explained e={known.explanation} d={known.detail} />
      </div>
    </>
  );
};

const Explained = ({ e, d }: { e: NodeExplanation; d: NodeDetail }) => {
  const st = e.standing;
  const now = there.value;
  return (
    <>
      <h1>{visible(e.node)} <StateWord state={st.state} /></h1>
      <p class="lead">
        {oneLine(st.why) || (st.state === "good" ? "Its last run succeeded, and nothing that it read has changed." : "The server gives no reason.")}
        {st.since && <span class="quiet"> since {stamp(st.since, now)} ({ago(st.since, now)})</span>}
      </p>
      <ul class="facts">
        {e.active && <li><b>now</b> {visible(e.active.phase)}: <Run r={e.active} /></li>}
        {!e.active && st.needs === "proof" && <li><b>next</b> a compile; if it shows that nothing has changed, the node is good, otherwise the catalog is applied</li>}
        {!e.active && st.needs === "apply" && <li><b>next</b> a run</li>}
        {st.rests && <li><b>rests</b> the node does not run by itself now: {oneLine(st.rests)}</li>}
        {d.conflicted && <li class="s-failed"><b>two machines</b> {oneLine(d.conflicted)}</li>}
        {d.paused && <li><b>paused</b> {oneLine(d.paused)}</li>}
        {d.trouble && <li><b>its agent says</b> {oneLine(d.trouble)}</li>}
      </ul>
      {(e.failures?.length ?? 0) > 0 && (
        <Section title="Failed"><ul class="plain">{e.failures?.map((f, i) => <li key={i} class="break">{failure(f)}</li>)}</ul></Section>
      )}
      {(e.changed?.length ?? 0) > 0 && (
        <Section title="Changed since it was read">
          <ul class="plain">
            {e.changed?.map((c, i) => (
              <li key={i}>
                <b class="break">{question(c.query)}</b> <Asked at={place(c.at)} />
                {c.causes?.length ? <Changes list={c.causes} /> : <p class="quiet">the log no longer shows who changed it</p>}
              </li>
            ))}
          </ul>
        </Section>
      )}
      {(e.waits?.length ?? 0) > 0 && <Section title="Waits for"><ul class="plain">{e.waits?.map((w, i) => <Wait key={i} w={w} />)}</ul></Section>}
      {(e.before?.length ?? 0) > 0 && (
        <Section title="Runs before it">
          <ul class="plain">
            {e.before?.map((w, i) => <li key={i}><Names of={w.publishers} /> {w.publishers?.length === 1 ? "publishes" : "publish"} {question(w.query)}</li>)}
          </ul>
        </Section>
      )}
      <Section title="Judged by">
        {st.run ? <p><Run r={st.run} /></p> : <p class="quiet">No run of this node has passed its gate yet.</p>}
        {e.basis && <Basis b={e.basis} />}
      </Section>
      <Reads e={e} d={d} />
      <Published d={d} />
      <Section title="Commands">
        <p class="quiet">This page only reads. Copy a command to do something:</p>
        <ul class="plain">
          {[`tutti explain node ${word(e.node)}`, `tutti node show ${word(e.node)}`, `tutti run show ${word(e.node)} --logs`,
            `tutti converge ${word(e.node)} --plan`, `tutti converge ${word(e.node)} --noop`].map((c) => <li key={c}><Command text={c} /></li>)}
        </ul>
      </Section>
    </>
  );
};

const Asked = ({ at }: { at: string }) => (at ? <span class="quiet">asked at {at}</span> : null);

const Names = ({ of }: { of: string[] | undefined }) => (
  <>
    {(of ?? []).slice(0, 5).map((n, i) => <span key={n}>{i > 0 && ", "}<Link to={linkTo.node(n)}>{visible(n)}</Link></span>)}
    {(of?.length ?? 0) > 5 && ` + ${number((of?.length ?? 0) - 5)}`}
  </>
);

const Changes = ({ list }: { list: Cause[] }) => (
  <ul class="plain inner">
    {list.map((c) => (
      <li key={c.seq}>
        {change(c)} by {person(c.by)}, {stamp(c.at, there.value)} ({ago(c.at, there.value)})
        {[["new", c.added], ["gone", c.removed], ["another", c.altered]].map(([what, refs]) =>
          refs?.length ? <div key={what as string} class="break">{what}: {some(refs as string[])}</div> : null)}
        {c.unknown && <div class="quiet">the log no longer shows what the node exported before</div>}
        {c.run && <div>in <Run r={c.run} /></div>}
      </li>
    ))}
  </ul>
);

const Wait = ({ w }: { w: WaitedFor }) => (
  <li>
    <b class="break">{question(w.query)}</b> <Asked at={place(w.at)} />
    {w.answered && <div>the question has an answer now</div>}
    {(w.publishers?.length ?? 0) > 0 && <div>to come from <Names of={w.publishers} /></div>}
    {(w.before?.length ?? 0) > 0 && <Changes list={w.before ?? []} />}
    {!w.answered && !w.publishers?.length && !w.before?.length && <div class="quiet">no known catalog publishes it, and no node published it before</div>}
  </li>
);

const Run = ({ r }: { r: RunView }) => (
  <span class="break">
    run <code>{visible(r.run)}</code>{r.node ? <> of {visible(r.node)}</> : null}, {outcome(r)}
    {r.ended_at && ` ${ago(r.ended_at, there.value)} ago`}
    {r.local ? ", a local run" : r.foreign ? ", not started by Tutti" : ""}
    {r.job && <>, in job {visible(r.job)}{r.by && ` (plan ${visible(r.plan)}, ${r.by === "server" ? "begun by the server itself" + (r.cause ? ": " + oneLine(r.cause) : "") : "started by " + person(r.by)})`}</>}
  </span>
);

const Basis = ({ b }: { b: NonNullable<NodeExplanation["basis"]> }) => {
  const rows: [string, string][] = [
    ["environment", visible(b.environment)], ["code", digest(b.code) + (b.commit ? ` (${visible(b.commit)})` : "")], ["Puppet", visible(b.puppet)],
    ["mode", visible(b.program)], ["groups", (b.groups ?? []).map(visible).join(", ") || (b.groups ? "no group" : "")],
    ["facts", b.facts ? `${digest(b.facts)}${b.facts_at ? `, last reported ${ago(b.facts_at, there.value)} ago` : ""}` : "not recorded"],
  ];
  return <dl class="basis">{rows.filter(([, v]) => v).map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl>;
};

const Reads = ({ e, d }: { e: NodeExplanation; d: NodeDetail }) => {
  const reads = d.reads ?? [];
  const changed = reads.filter((r) => r.changed).length;
  const list = [...reads.filter((r) => r.changed), ...reads.filter((r) => !r.changed)].slice(0, 100);
  return (
    <Section title={`Reads ${number(e.reads)}${changed ? ` (${number(changed)} changed)` : ""}`}>
      {list.length === 0 && <p class="quiet">Its last catalog asked no question.</p>}
      {list.length > 0 && (
        <ul class="plain">
          {list.map((r, i) => (
            <li key={i} class={r.changed ? "s-stale" : ""}>
              <span class="break">{question(r.query)}</span> <Asked at={place(r.at)} />{!r.found && <span class="quiet"> no answer</span>}
              {r.changed && <b> changed{r.changed_at ? ` ${ago(r.changed_at, there.value)} ago` : ""}</b>}
            </li>
          ))}
        </ul>
      )}
      {reads.length > list.length && <p class="quiet">+ {number(reads.length - list.length)}: <Command text={`tutti node show ${word(e.node)}`} /></p>}
      {d.keys > 0 && <p class="quiet">{count(d.keys, "hiera key")} looked up, {number(d.absent)} of them without a value in Tutti</p>}
    </Section>
  );
};

const Published = ({ d }: { d: NodeDetail }) => {
  const values = Object.keys(d.published ?? {}).sort();
  const all = [...values.map((v) => `value "${visible(v)}"`), ...(d.exports ?? []).map(visible)];
  return (
    <Section title={`Publishes ${number(all.length)}`}>
      {all.length === 0 ? <p class="quiet">Nothing. A node publishes with <code>tutti_value</code> and with exported resources.</p>
        : <ul class="plain">{all.slice(0, 50).map((t) => <li key={t} class="break">{t}</li>)}</ul>}
      {all.length > 50 && <p class="quiet">+ {number(all.length - 50)}</p>}
    </Section>
  );
};
