// The stream of views, and what a tab and the worker say to each other.
import type { Frame } from "./types";

export type ToTab =
  | { kind: "bearer"; bearer: string }
  | { kind: "views"; reset: boolean; at: string; views: [string, unknown][] } // null: there is no such view any more
  | { kind: "error"; message: string; closed: boolean };

export type ToWorker = { kind: "hello"; bearer: string } | { kind: "ask" } | { kind: "seen"; visible: boolean } | { kind: "bye" } | { kind: "retry" };

const silence = 20_000; // a stream has a frame each 5 seconds
const longest = 10_000; // between two tries

export class Feed {
  readonly rows = new Map<string, unknown>();
  private bearer = "";
  private cursor = "";
  private at = "";
  private complete = false; // the rows are those of one event of the log
  // news is what a tab does not know yet. A tab gets it when it is complete, so no tab shows half a fleet.
  private news: Extract<ToTab, { kind: "views" }> = nothing();
  private running: AbortController | undefined;
  private wake: (() => void) | undefined;

  constructor(private readonly emit: (m: ToTab) => void) {}

  start(bearer: string): void {
    if (this.running && this.bearer === bearer) return;
    this.stop();
    this.bearer = bearer;
    const own = (this.running = new AbortController());
    void this.follow(own);
  }

  stop(): void {
    this.running?.abort();
    this.running = undefined;
    this.wake?.();
  }

  retry(): void {
    this.wake?.();
  }

  // everything is a message for a tab that comes later.
  everything(): ToTab {
    return this.complete ? { kind: "views", reset: true, at: this.at, views: [...this.rows] } : nothing();
  }

  private async follow(own: AbortController): Promise<void> {
    for (let pause = 500; !own.signal.aborted; pause = Math.min(2 * pause, longest)) {
      try {
        await this.read(own, () => (pause = 500));
      } catch (e) {
        if (own.signal.aborted) return;
        const closed = e instanceof Closed;
        this.emit({ kind: "error", message: e instanceof Said ? e.message : lost, closed });
        if (closed) {
          this.running = undefined;
          return;
        }
      }
      await new Promise<void>((go) => {
        const timer = setTimeout(go, pause);
        this.wake = () => { clearTimeout(timer); go(); };
      });
    }
  }

  private async read(own: AbortController, good: () => void): Promise<void> {
    const one = new AbortController();
    const end = (): void => one.abort();
    own.signal.addEventListener("abort", end);
    let timer = setTimeout(end, silence);
    try {
      const answer = await fetch("/v1/fleet/watch", {
        method: "POST", signal: one.signal, referrerPolicy: "no-referrer", credentials: "omit",
        headers: { "Content-Type": "application/json", Authorization: "Bearer " + this.bearer },
        body: JSON.stringify({ want: ["fleet", "group", "cause", "node"], after: this.cursor }),
      });
      if (answer.status === 404) throw new Said("the server is older than this program and cannot show the fleet here; upgrade the server");
      if (!answer.ok || !answer.body) throw await said(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(end, silence);
        const lines = (rest + value).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (line === "") continue;
          const l = JSON.parse(line) as { item?: Frame; end?: boolean; error?: { message: string } };
          if (l.error) throw new Said(l.error.message);
          if (l.item) { this.take(l.item); good(); }
        }
      }
    } finally {
      clearTimeout(timer);
      own.signal.removeEventListener("abort", end);
      one.abort();
    }
  }

  private take(f: Frame): void {
    const news = this.news;
    if (f.reset) {
      this.rows.clear();
      Object.assign(news, nothing(), { reset: true });
    }
    for (const { key, view } of f.views ?? []) {
      this.rows.set(key, view);
      news.views.push([key, view]);
    }
    for (const key of f.gone ?? []) {
      this.rows.delete(key);
      news.views.push([key, null]);
    }
    this.cursor = f.cursor;
    this.complete = f.whole ?? false;
    if (!this.complete) return;
    this.at = news.at = f.at;
    this.news = nothing();
    this.emit(news);
  }
}

const nothing = (): Extract<ToTab, { kind: "views" }> => ({ kind: "views", reset: false, at: "", views: [] });

export const lost = "the program \"tutti ui\" does not answer; it may have ended";

// Said is an error with a sentence for people. Closed means that the door does not know this page any more.
export class Said extends Error {}
export class Closed extends Said {}

export const said = async (answer: Response): Promise<Said> => {
  let message = `the answer is ${answer.status}`;
  try {
    message = ((await answer.json()) as { message?: string }).message || message;
  } catch { /* the answer is not of Tutti */ }
  return answer.status === 401 && answer.headers.has("Tutti-Door") ? new Closed(message) : new Said(message);
};
