// What the server says is so. A map from key to view, as ADR 0042 describes it.
import { batch, computed, signal } from "@preact/signals";
import type { ToTab } from "./feed";
import type { FleetView, GroupView, NodeCause, NodeRow, State } from "./types";

const kinds = {
  group: new Map<string, GroupView>(),
  cause: new Map<string, NodeCause>(),
  node: new Map<string, NodeRow>(),
};

const changed = { group: signal(0), cause: signal(0), node: signal(0) };

export const fleet = signal<FleetView | null>(null);
// whole is true after the first snapshot. Each message is complete, so the page never shows half a fleet.
export const whole = signal(false);
// beat is when the last frame arrived, and told is the server's time in this frame.
export const beat = signal(0);
export const told = signal("");
// now follows the clock.
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);

const late = 6_000; // a frame arrives at least each 5 seconds
export const behind = computed(() => (beat.value && now.value - beat.value > late ? Math.floor((now.value - beat.value) / 1000) : 0));
// there is the server's time now. So a wrong clock of this machine does not matter.
export const there = computed(() => (told.value ? Date.parse(told.value) + Math.max(0, now.value - beat.value) : now.value));

const put = (key: string, view: unknown): void => {
  if (key === "fleet") {
    fleet.value = view as FleetView | null;
    return;
  }
  const [kind, ...rest] = key.split("/");
  if (kind !== "group" && kind !== "cause" && kind !== "node") return;
  const name = rest.join("/");
  if (view === null) kinds[kind].delete(name);
  else (kinds[kind] as Map<string, unknown>).set(name, view);
  changed[kind].value++;
};

export const take = (m: Extract<ToTab, { kind: "views" }>): void =>
  batch(() => {
    if (m.reset) {
      for (const kind of ["group", "cause", "node"] as const) {
        kinds[kind].clear();
        changed[kind].value++;
      }
    }
    for (const [key, view] of m.views) put(key, view);
    if (m.at) {
      whole.value = true;
      told.value = m.at;
      beat.value = Date.now();
      now.value = Date.now();
    }
  });

// order is the order of states on the screen: who needs somebody first.
export const order: State[] = ["failed", "waiting", "disabled", "silent", "drifting", "unknown", "stale", "never ran", "suspect", "good"];
export const waitsForPeople: State[] = ["failed", "waiting", "disabled", "silent", "drifting", "unknown"];
const rank = new Map(order.map((s, i) => [s, i]));
export const rankOf = (s: State): number => rank.get(s) ?? order.length;
const byName = new Intl.Collator("en", { numeric: true });

export const nodes = computed(() => {
  void changed.node.value;
  return [...kinds.node.values()].sort((a, b) => rankOf(a.state) - rankOf(b.state) || byName.compare(a.node, b.node));
});
export const nodeOf = (name: string): NodeRow | undefined => {
  void changed.node.value;
  return kinds.node.get(name);
};
export const causes = computed(() => {
  void changed.cause.value;
  return [...kinds.cause.values()].sort((a, b) => rankOf(a.state) - rankOf(b.state) || b.nodes - a.nodes || byName.compare(a.text, b.text));
});
export const causeOf = (id: string): NodeCause | undefined => {
  void changed.cause.value;
  return kinds.cause.get(id);
};
export const groups = computed(() => {
  void changed.group.value;
  return [...kinds.group.values()].sort((a, b) => b.nodes - a.nodes || byName.compare(a.group, b.group));
});
