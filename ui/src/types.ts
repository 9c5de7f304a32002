// The views of the server (api/overview.go, api/explain.go). The page draws them and judges nothing.

export type State =
  | "good" | "suspect" | "stale" | "waiting" | "failed" | "never ran"
  | "unknown" | "silent" | "disabled" | "drifting";

export type Counts = Partial<Record<State, number>>;

export interface FleetView {
  fleet?: string; environment?: string; code?: string; nodes: number; states?: Counts;
  away?: number; paused?: number; running?: number; conflicted?: number; jobs?: number; full?: string;
}

export interface GroupView { group: string; nodes: number; states?: Counts }

export interface NodeCause {
  id: string; state: State; kind: string; text: string; query?: Query; environment?: string; code?: string;
  change?: string; key?: string; from?: string; by?: string; at?: string; since?: string;
  nodes: number; some: string[]; next?: string;
}

export interface NodeRow {
  node: string; state: State; why?: string; since?: string; cause?: string; groups?: string[]; environment?: string;
  connected?: boolean; stopped?: boolean; observed?: boolean; paused?: string; conflicted?: string; trouble?: string;
  held_by?: string; active?: string; active_job?: string; phase?: string; last_run?: string; last_job?: string;
  outcome?: string; run_at?: string;
}

export interface Frame {
  seq: number; at: string; reset?: boolean; whole?: boolean; views?: { key: string; view: unknown }[]; gone?: string[];
  cursor: string;
}

export interface Query { kind: string; key?: string; type?: string; filter?: unknown }
export interface Place { resource?: string; file?: string; line?: number }
export interface Failure { resource?: string; file?: string; line?: number; message: string }

export interface RunView {
  run: string; node: string; job?: string; step?: string; by?: string; cause?: string; plan?: string; mode: string;
  foreign?: boolean; local?: unknown; code: string; outcome?: string; reason?: string; stopped?: boolean; proved?: boolean;
  phase?: string; ended_at?: string; other_code?: boolean; because?: Query[];
}

export interface Cause {
  seq: number; at: string; by: string; key?: string; unset?: boolean; run?: RunView; groups?: boolean; enc?: boolean;
  added?: string[]; removed?: string[]; altered?: string[]; unknown?: boolean;
}

export interface WaitedFor { query: Query; at?: Place; answered?: boolean; publishers?: string[]; before?: Cause[] }

export interface Standing { state: State; needs: string; why?: string; rests?: string; since?: string; run?: RunView }

export interface NodeExplanation {
  node: string; standing: Standing; active?: RunView; reads: number;
  basis?: {
    environment?: string; code?: string; commit?: string; puppet?: string; program?: string; groups?: string[];
    facts?: string; facts_at?: string; machine?: string;
  };
  changed?: { query: Query; at?: Place; was?: string; causes?: Cause[] }[];
  waits?: WaitedFor[]; failures?: Failure[]; before?: WaitedFor[];
}

export interface ReadView { query: Query; found: boolean; at?: Place; changed?: boolean; changed_at?: string }

export interface NodeDetail {
  node: string; recorded?: string; reads?: ReadView[]; keys: number; absent: number;
  published?: Record<string, string>; exports?: string[]; version?: string; puppet?: string; trouble?: string;
  paused?: string; conflicted?: string;
}

export interface About { operator: string; server: string; release: string }
