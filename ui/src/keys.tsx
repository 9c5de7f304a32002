// The keyboard: each screen says which keys it has, and `?` shows them.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Key { key: string; what: string; do: () => void }

const own = signal<Key[]>([]);
export const help = signal(false);
// note is what the page says at its lower edge, for example after a copy.
export const note = signal("");
// command is the command line that shows the same as this screen.
export const command = signal("tutti node list");

let noteTimer = 0;
export const say = (text: string): void => {
  note.value = text;
  clearTimeout(noteTimer);
  noteTimer = setTimeout(() => (note.value = ""), 6_000);
};

export const copy = async (text: string): Promise<void> => {
  try {
    await navigator.clipboard.writeText(text);
    say("copied: " + text);
  } catch {
    say("the browser does not let this page copy; the command is: " + text);
  }
};

const everywhere: Key[] = [
  { key: "?", what: "show the keys", do: () => (help.value = !help.value) },
  { key: "c", what: "copy the command of this screen", do: () => void copy(command.value) },
  { key: "/", what: "filter", do: () => document.getElementById("filter")?.focus() },
];

addEventListener("keydown", (e) => {
  const at = e.target as HTMLElement | null;
  if (at && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName)) {
    if (e.key === "Escape") at.blur();
    return;
  }
  if (e.ctrlKey || e.metaKey || e.altKey || (help.value && e.key !== "?")) return;
  // Enter on a link or a button is the browser's.
  if (e.key === "Enter" && at && /^(A|BUTTON|SUMMARY)$/.test(at.tagName)) return;
  const key = [...own.value, ...everywhere].find((k) => k.key === e.key);
  if (!key) return;
  e.preventDefault();
  key.do();
});

// useKeys gives a screen its keys as long as it is there.
export const useKeys = (keys: Key[]): void => {
  const last = useRef(keys);
  last.current = keys;
  useEffect(() => {
    own.value = keys.map((k, i) => ({ key: k.key, what: k.what, do: () => last.current[i]?.do() }));
    return () => { own.value = []; };
  }, []);
};

export const Help = () => {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = help.value;
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} aria-label="Keys" onClose={() => (help.value = false)}>
      <h2>Keys</h2>
      <dl class="keys">
        {[...everywhere, ...own.value].map((k) => (
          <div key={k.key}>
            <dt><kbd>{k.key}</kbd></dt>
            <dd>{k.what}</dd>
          </div>
        ))}
      </dl>
      <p class="quiet">The command of this screen: <code>{command.value}</code></p>
      <button type="button" onClick={() => (help.value = false)}>Close</button>
    </dialog>
  );
};
