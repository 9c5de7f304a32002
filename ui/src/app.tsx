// The frame of the page: the bar, the screen, what the page says at its lower edge.
import { render } from "preact";
import { Fleet } from "./fleet";
import { Help, command, copy, help, note } from "./keys";
import { about, connect, ready, retry, shut, trouble } from "./link";
import { Command, Problem, Waiting } from "./parts";
import { Link, linkTo, path } from "./router";
import { Node } from "./node";
import { beat, behind, fleet } from "./store";
import { clock, oneLine, visible } from "./text";

const Live = () => {
  if (!beat.value) return <span class="live" role="status">connecting</span>;
  if (behind.value) return <span class="live late" role="status">{behind.value} s behind</span>;
  return <span class="live on" role="status">live</span>;
};

const TopBar = () => (
  <header class="top">
    <Link to={linkTo.fleet()} class="name">{visible(fleet.value?.fleet) || "Tutti"}</Link>
    <nav aria-label="Screens">
      <Link to={linkTo.fleet()} current={path.value === "/ui/"}>Fleet</Link>
    </nav>
    <span class="space" />
    <Live />
    <span class="only" title="The program tutti ui passes on only calls that read">read only</span>
    {about.value && <span class="who" title={visible(about.value.server)}>{visible(about.value.operator)}</span>}
    <button type="button" onClick={() => (help.value = true)} aria-label="Keys" title="Keys (?)">?</button>
  </header>
);

const Screen = () => {
  if (path.value === "/ui/" || path.value === "/ui/index.html") return <Fleet />;
  const node = /^\/ui\/nodes\/([^/]+)$/.exec(path.value)?.[1];
  if (node) {
    const name = decoded(node);
    return <Node key={name} name={name} />;
  }
  return <><h1>No such page</h1><p><Link to={linkTo.fleet()}>The fleet</Link></p></>;
};

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

const Shut = () => (
  <main>
    <h1>Not connected</h1>
    <p role="alert">{oneLine(shut.value)}</p>
    <p><Command text="tutti ui" /></p>
  </main>
);

const App = () => {
  if (shut.value) return <Shut />;
  return (
    <>
      <TopBar />
      <main class={trouble.value || behind.value > 24 ? "stands" : ""}>
        {trouble.value && <Problem text={oneLine(trouble.value) + (beat.value ? `; the page is as of ${clock(beat.value)}` : "")} again={retry} />}
        {ready.value ? <Screen /> : <Waiting what="The page connects" />}
      </main>
      <footer>
        <button type="button" class="copy" onClick={() => void copy(command.value)} title="copy (c)"><code data-command={command.value}>{command.value}</code></button>
        <span role="status" aria-live="polite" class="note">{note.value}</span>
        {about.value?.release && <span class="quiet">Tutti {visible(about.value.release)}</span>}
      </footer>
      <Help />
    </>
  );
};

const root = document.getElementById("app");
if (root) render(<App />, root);
void connect();
