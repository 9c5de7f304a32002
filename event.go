package tutti

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Body is what happened, in the past tense. Each kind of event is one struct;
// old logs must fold for ever, so fields are only ever added.
type Body interface {
	// Kind is `noun.verb`; the noun and ID make the subject in the log.
	Kind() string
	// ID identifies the thing it happened to (a job, a run, a node, …). It is
	// encoded before it becomes part of a subject.
	ID() string
}

// Event is one entry of the log. Seq is the log's sequence, 0 before the
// append; events of one batch are seen together or not at all.
type Event struct {
	Seq  uint64
	At   time.Time
	By   string // who: `operator:NAME`, `node:NAME`, `server`
	Link Digest // set by the log, no part of what it stores; see Link
	Body Body
}

// The events.
type (
	// FleetSet replaces the fleet file. Source is its text, for people.
	FleetSet struct {
		Fleet  Fleet  `json:"fleet"`
		Digest Digest `json:"digest"`
		Source string `json:"source,omitempty"`
	}
	// CodePushed says that a signed manifest and all its files are stored.
	CodePushed struct {
		Environment string `json:"environment"`
		Code        Digest `json:"code"`
		Signed      Digest `json:"signed"` // the blob of SignedCode
		Files       int    `json:"files"`
		Bytes       int64  `json:"bytes"`
	}
	// TokenCreated allows one key to join. Hash is of the token's secret.
	TokenCreated struct {
		Token   TokenID     `json:"token"`
		Hash    Digest      `json:"hash"`
		Name    string      `json:"name"` // pattern
		Groups  []GroupName `json:"groups,omitempty"`
		Expires time.Time   `json:"expires"`
	}
	// TokenRevoked ends a token that nobody used.
	TokenRevoked struct {
		Token TokenID `json:"token"`
	}
	// NodeEnrolled binds a name and a token to a key.
	NodeEnrolled struct {
		Node   NodeName    `json:"node"`
		Key    NodeKey     `json:"key"`
		BoxKey string      `json:"box_key,omitempty"` // X25519, base64
		Token  TokenID     `json:"token"`
		Groups []GroupName `json:"groups,omitempty"`
	}
	// NodeReplaceable allows the next token that fits to take over the name.
	NodeReplaceable struct {
		Node NodeName `json:"node"`
	}
	// NodeRemoved withdraws a node's identity and everything it published.
	NodeRemoved struct {
		Node NodeName `json:"node"`
	}
	// JobStarted is one execution of a plan, with everything resolved.
	JobStarted struct {
		Job     JobID                   `json:"job"`
		Plan    Plan                    `json:"plan"`
		Mode    Mode                    `json:"mode"`
		Env     string                  `json:"environment"`
		Code    Digest                  `json:"code"`
		Targets map[StepName][]NodeName `json:"targets"` // sorted
		// Cause is why the server began it by itself, in words; empty for jobs of
		// people.
		Cause string `json:"cause,omitempty"`
	}
	// JobCancelled lets no further run begin; what runs ends.
	JobCancelled struct {
		Job    JobID  `json:"job"`
		Reason string `json:"reason,omitempty"`
	}
	// JobFinished is the verdict.
	JobFinished struct {
		Job     JobID   `json:"job"`
		Verdict Verdict `json:"verdict"`
		Message string  `json:"message,omitempty"`
	}
	// StepStarted begins a wait step.
	StepStarted struct {
		Job  JobID    `json:"job"`
		Step StepName `json:"step"`
	}
	// StepFinished ends a wait step.
	StepFinished struct {
		Job     JobID    `json:"job"`
		Step    StepName `json:"step"`
		OK      bool     `json:"ok"`
		Message string   `json:"message,omitempty"`
	}
	// RunWanted orders one Puppet process; a node claims it.
	RunWanted struct {
		Order Order `json:"order"`
	}
	// RunClaimed precedes the reply to the node that claimed the run.
	RunClaimed struct {
		Run  RunID    `json:"run"`
		Node NodeName `json:"node"`
	}
	// RunGated is the gate's answer.
	RunGated struct {
		Run     RunID       `json:"run"`
		Verdict GateVerdict `json:"verdict"`
		Reason  string      `json:"reason,omitempty"`
		Catalog Digest      `json:"catalog,omitempty"`
		// Values are the keys that the catalog wants published.
		Values []string `json:"values,omitempty"`
	}
	// RunCompiled is what a compile handed over at its gate, appended before or with
	// the gate's decision. What the run asked is the blob Asked.
	RunCompiled struct {
		Run RunID  `json:"run"`
		Set Digest `json:"set,omitempty"` // of its exports, empty: none
		Compiled
		Asked  Digest `json:"asked"`
		Absent Digest `json:"absent,omitempty"` // the blob that Asked names
		Reads  *Asked `json:"-"`                // the content of Asked
	}
	// RunAsked replaces what is known of what a run asked: it failed before its
	// gate, or asked more behind it, or a Puppet Server has compiled for it.
	RunAsked struct {
		Run    RunID   `json:"run"`
		Asked  Digest  `json:"asked"`
		Absent Digest  `json:"absent,omitempty"`
		Reads  *Asked  `json:"-"`
		Served *Served `json:"served,omitempty"`
	}
	// RunProved says that a run that was stopped at its gate has shown that its node
	// is good: nothing can have changed since its last run.
	RunProved struct {
		Run RunID `json:"run"`
		// Rests is when the run began, by its node's clock, that applied what the node
		// has.
		Rests time.Time `json:"rests,omitzero"`
	}
	// ConvergeFinished ends a converge step.
	ConvergeFinished struct {
		Job     JobID    `json:"job"`
		Step    StepName `json:"step"`
		Verdict Verdict  `json:"verdict"`
		Message string   `json:"message,omitempty"`
		// Diverging are nodes that are let alone, each with the digest of the answers
		// that it last had: another digest is a reason to try again.
		Diverging map[NodeName]Digest `json:"diverging,omitempty"`
	}
	// Paused keeps converging from starting anything on a target: a group, a node, or
	// (empty) the whole fleet. It replaces what was said of the same target before.
	Paused struct {
		Target string    `json:"target"`
		Reason string    `json:"reason"`
		Until  time.Time `json:"until"` // zero: until it is unpaused
	}
	// Unpaused ends that.
	Unpaused struct {
		Target string `json:"target"`
	}
	// LeaseChanged is how a node stands in an exclusive job: the node's word, or the
	// server's of a node that says nothing.
	LeaseChanged struct {
		Job     JobID      `json:"job"`
		Node    NodeName   `json:"node"`
		State   LeaseState `json:"state"`
		Message string     `json:"message,omitempty"`
	}
	// RunFinished is the node's word on its run.
	RunFinished struct {
		Result Result `json:"result"`
	}
	// RunLost says that nobody has heard from the node for the deadline.
	RunLost struct {
		Run    RunID  `json:"run"`
		Reason string `json:"reason"`
	}
	// RunForeign is a node's word on a run that Tutti did not start.
	RunForeign struct {
		Node NodeName `json:"node"`
		Foreign
	}
	// ExportsSet replaces a node's exports as a whole. Overlay sets are read
	// by their own job only. Exports is the content of the blob Set; the log
	// holds the digest alone.
	ExportsSet struct {
		Node    NodeName `json:"node"`
		Run     RunID    `json:"run"`
		Job     JobID    `json:"job,omitempty"`
		Overlay bool     `json:"overlay,omitempty"`
		Set     Digest   `json:"set"`
		Count   int      `json:"count"`
		Exports []Export `json:"-"`
		// CatalogUUID is that of the catalog that PuppetDB has or will have them from;
		// the run may be one that others started. Empty: they are not in PuppetDB.
		CatalogUUID string `json:"catalog_uuid,omitempty"`
	}
	// ValueSet gives a key a value. Owner is a node, or empty for operators.
	ValueSet struct {
		Key   string          `json:"key"`
		Value json.RawMessage `json:"value"`
		Owner NodeName        `json:"owner,omitempty"`
		Run   RunID           `json:"run,omitempty"`
		Job   JobID           `json:"job,omitempty"`
	}
	// ValueUnset withdraws a value.
	ValueUnset struct {
		Key   string   `json:"key"`
		Owner NodeName `json:"owner,omitempty"`
		Run   RunID    `json:"run,omitempty"`
		Job   JobID    `json:"job,omitempty"`
	}
	// JobRetired lets a finished job go, with its runs; the latest run of each
	// node stays.
	JobRetired struct {
		Job JobID `json:"job"`
	}
	// SnapshotTaken says that the blob State has what is needed of the events up
	// to and with Through, whose link is Link; the log may let them go. Segments
	// are the audit trail of what was let go, the oldest first, Operators all who
	// ever did something: whose certificate is in no event is known by that alone.
	SnapshotTaken struct {
		Through   uint64         `json:"through"`
		Link      Digest         `json:"link"`
		State     Digest         `json:"state"`
		Events    int            `json:"events"`
		Segments  []AuditSegment `json:"segments,omitempty"`
		Operators []string       `json:"operators,omitempty"` // sorted
	}
	// OperatorIssued lets a certificate in. The first one, made with the server, is
	// noted when that first starts.
	OperatorIssued struct {
		Operator string    `json:"operator"`
		Serial   string    `json:"serial"` // hexadecimal
		Expires  time.Time `json:"expires"`
		CodeKey  bool      `json:"code_key,omitempty"` // may sign code
	}
	// OperatorRevoked ends all certificates that an operator has.
	OperatorRevoked struct {
		Operator string `json:"operator"`
		Reason   string `json:"reason,omitempty"`
	}
	// Denied is an attempt without a grant.
	Denied struct {
		Who    string `json:"who"`
		What   string `json:"what"`
		Reason string `json:"reason"`
	}
)

// Validate refuses plans that cannot be executed.
func (b *FleetSet) Validate() error {
	for _, p := range b.Fleet.Plans {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Validate refuses a plan that cannot be executed, and targets of steps that
// run nothing.
func (b *JobStarted) Validate() error {
	if err := b.Plan.Validate(); err != nil {
		return err
	}
	for _, s := range b.Plan.Steps {
		if s.Run == nil && len(b.Targets[s.Name]) > 0 {
			return Errorf(CodeInvalid, "job %q: step %q runs nothing and has nodes", string(b.Job), string(s.Name))
		}
	}
	return nil
}

// Validate refuses a state that no fold knows.
func (b *LeaseChanged) Validate() error {
	if !slices.Contains(LeaseStates, b.State) {
		return Errorf(CodeInvalid, "job %q: node %s is in state %q, which is none of a lease", string(b.Job), b.Node, string(b.State))
	}
	return nil
}

// AuditSegment is a part of the log that was let go: a blob with its entries.
// Before is the link of the entry before First, After that of Last.
type AuditSegment struct {
	First  uint64    `json:"first"`
	Last   uint64    `json:"last"`
	Before Digest    `json:"before,omitempty"`
	After  Digest    `json:"after"`
	Until  time.Time `json:"until"` // of the last entry
	Blob   Digest    `json:"blob"`
}

// Verdict is how a job ended.
type Verdict string

// The verdicts of a job that executes a plan.
const (
	VerdictSucceeded Verdict = "succeeded"
	VerdictFailed    Verdict = "failed"
	VerdictCancelled Verdict = "cancelled"
)

// The verdicts of a job that converges, besides VerdictFailed and VerdictCancelled.
const (
	VerdictConverged Verdict = "converged" // all nodes are good
	VerdictStuck     Verdict = "stuck"     // all that is not good waits for a missing answer
	VerdictDiverging Verdict = "diverging" // nodes keep changing each other's data
	VerdictPartial   Verdict = "partial"   // all are good but nodes that are not connected
)

// Good reports whether a job that ended so did what it was to do.
func (v Verdict) Good() bool { return v == VerdictSucceeded || v == VerdictConverged }

// GateVerdict is the gate's answer to a run.
type GateVerdict string

// The answers of the gate.
const (
	GateGo   GateVerdict = "go"
	GateStop GateVerdict = "stop"
	GateHold GateVerdict = "hold" // not yet: ask again; never in the log
)

// Order is what a node is told to do by one run.
type Order struct {
	Run         RunID         `json:"run"`
	Node        NodeName      `json:"node"`
	Job         JobID         `json:"job,omitempty"`
	Step        StepName      `json:"step,omitempty"`
	Mode        Mode          `json:"mode"`
	Environment string        `json:"environment"`
	Code        Digest        `json:"code"`
	Timeout     time.Duration `json:"timeout"`
	Attempt     int           `json:"attempt"` // 1, and one more for each stop at the gate
	// Program is empty for ProgramApply. An order for ProgramAgent has no Code, and
	// an empty Environment leaves that to the node and its Puppet Server.
	Program  Program  `json:"program,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	SkipTags []string `json:"skip_tags,omitempty"`
	Debug    bool     `json:"debug,omitempty"`
	// FreshFacts: none that were collected before the run began.
	FreshFacts bool `json:"fresh_facts,omitempty"`
	// Exclusive: its job holds the node; without that it is not begun.
	Exclusive bool `json:"exclusive,omitempty"`
	// Proof: it is stopped at its gate, and the node is good, if nothing can have
	// changed since its last run.
	Proof bool `json:"proof,omitempty"`
}

// Validate refuses an order that no node can carry out.
func (o Order) Validate() error {
	if err := o.Run.Validate(); err != nil {
		return err
	}
	if err := o.Node.Validate(); err != nil {
		return err
	}
	if o.Mode != ModeApply && o.Mode != ModeNoop && o.Mode != ModeCompile || o.Timeout < 0 {
		return Errorf(CodeInvalid, "order of run %s: mode %q, timeout %s", o.Run, string(o.Mode), o.Timeout)
	}
	if o.Program == ProgramAgent && o.Code == "" {
		return nil
	}
	if o.Program != "" {
		return Errorf(CodeInvalid, "order of run %s: program %q with code %q", o.Run, string(o.Program), string(o.Code))
	}
	return o.Code.Validate()
}

// Full reports whether the run changes all that its catalog asks for: by others no
// node is judged, and they withdraw nothing.
func (o Order) Full() bool { return o.Mode == ModeApply && len(o.Tags) == 0 && len(o.SkipTags) == 0 }

// bodies makes an empty body for each kind; an unknown kind is an error, never
// skipped: a log from a later release must not be folded by an earlier one.
var bodies = map[string]func() Body{}

func register(bs ...func() Body) {
	for _, b := range bs {
		bodies[b().Kind()] = b
	}
}

// Kinds returns the kinds of all events, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(bodies)) }

func init() {
	register(
		func() Body { return &FleetSet{} }, func() Body { return &CodePushed{} },
		func() Body { return &TokenCreated{} }, func() Body { return &TokenRevoked{} },
		func() Body { return &NodeEnrolled{} }, func() Body { return &NodeReplaceable{} }, func() Body { return &NodeRemoved{} },
		func() Body { return &JobStarted{} }, func() Body { return &JobCancelled{} }, func() Body { return &JobFinished{} },
		func() Body { return &StepStarted{} }, func() Body { return &StepFinished{} },
		func() Body { return &RunWanted{} }, func() Body { return &RunClaimed{} }, func() Body { return &RunGated{} },
		func() Body { return &RunCompiled{} }, func() Body { return &RunAsked{} }, func() Body { return &RunProved{} },
		func() Body { return &ConvergeFinished{} }, func() Body { return &Paused{} }, func() Body { return &Unpaused{} },
		func() Body { return &LeaseChanged{} },
		func() Body { return &RunFinished{} }, func() Body { return &RunLost{} }, func() Body { return &RunForeign{} },
		func() Body { return &ExportsSet{} }, func() Body { return &ValueSet{} }, func() Body { return &ValueUnset{} },
		func() Body { return &JobRetired{} }, func() Body { return &SnapshotTaken{} },
		func() Body { return &OperatorIssued{} }, func() Body { return &OperatorRevoked{} },
		func() Body { return &Denied{} },
		func() Body { return &RemoteAsked{} }, func() Body { return &RemoteAnswered{} },
	)
}

type eventJSON struct {
	Version int             `json:"v"`
	Seq     uint64          `json:"seq,omitempty"`
	Kind    string          `json:"kind"`
	At      time.Time       `json:"at"`
	By      string          `json:"by"`
	Data    json.RawMessage `json:"data"`
}

// MarshalJSON encodes an event as the log keeps it.
func (e Event) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(e.Body)
	if err != nil {
		return nil, fmt.Errorf("encode %s event: %w", e.Body.Kind(), err)
	}
	return json.Marshal(eventJSON{Version: 1, Seq: e.Seq, Kind: e.Body.Kind(), At: e.At.UTC(), By: e.By, Data: data})
}

// UnmarshalJSON decodes an event; an unknown kind or version is an error, and so
// is what no fold can live with (the Validate methods of bodies).
func (e *Event) UnmarshalJSON(raw []byte) error {
	var in eventJSON
	if err := json.Unmarshal(raw, &in); err != nil {
		return Wrap(CodeInvalid, err, "event")
	}
	newBody, ok := bodies[in.Kind]
	if in.Version != 1 || !ok {
		return Errorf(CodeInvalid, "event of kind %q, version %d: not known to this release; the log was written by a later one", in.Kind, in.Version)
	}
	if year := in.At.UTC().Year(); year < 0 || year > 9999 { // it could not be encoded again
		return Errorf(CodeInvalid, "event of kind %q: its time is in the year %d", in.Kind, year)
	}
	body := newBody()
	if err := json.Unmarshal(in.Data, body); err != nil {
		return Wrap(CodeInvalid, err, "event %d of kind %q", in.Seq, in.Kind)
	}
	if b, ok := body.(interface{ Validate() error }); ok {
		if err := b.Validate(); err != nil {
			return Wrap(CodeInvalid, err, "event %d of kind %q", in.Seq, in.Kind)
		}
	}
	*e = Event{Seq: in.Seq, At: in.At, By: in.By, Body: body}
	return nil
}
