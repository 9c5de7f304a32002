package tutti

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Body is the content of an event. The name of a Body says in the past tense what happened. Each
// kind of event is one struct. Fields are only added and never removed, because later releases must
// still fold old logs.
type Body interface {
	// Kind is `noun.verb`. The subject in the log consists of this noun and the ID.
	Kind() string
	// ID identifies the thing to which the event happened (a job, a run, a node, …). The log encodes
	// the ID before it puts the ID into a subject.
	ID() string
}

// Event is one entry of the log. Seq is the log's sequence. Before the append Seq is 0. Readers see
// either all events of a batch or none of the batch's events.
type Event struct {
	Seq  uint64
	At   time.Time
	By   string // who: `operator:NAME`, `node:NAME`, `server`
	Link Digest // Link is set by the log and not stored with the event (see func Link).
	Body Body
}

// Scope says which watch shows an event: the watch of a job, of a run or of a node.
type Scope string

// The scopes.
const (
	ScopeJob  Scope = "job"  // the watch of the job that the event's ID names
	ScopeRun  Scope = "run"  // the watch of the run that the event's ID names, and the watch of that run's job
	ScopeNode Scope = "node" // the watch of a node, but no watch of a job
	ScopeNone Scope = "none" // no watch shows the event
)

// Trail says for which events of a kind the audit trail keeps the full bytes. For all other events
// the audit trail keeps only the digest.
type Trail string

// The two ways.
const (
	TrailAlways    Trail = "always"    // the audit trail keeps the bytes of all events of the kind
	TrailOperators Trail = "operators" // the audit trail keeps the bytes of events that operators caused
)

// Keep says how long a snapshot keeps the events of a kind for the folds.
type Keep string

// The ways.
const (
	KeepNever   Keep = "never"
	KeepLast    Keep = "last" // a snapshot keeps only the last event with the same ID
	KeepWithJob Keep = "job"  // a snapshot keeps the event as long as the job that the ID names
	KeepWithRun Keep = "run"  // a snapshot keeps the event as long as the run that the ID names
	KeepOwn     Keep = "own"  // package retain has a separate rule for this kind
)

// eventKind is a row of the table of event kinds. Package cli has a row with the text for people. A
// test in package cli checks that every kind has a row.
type eventKind struct {
	body  func() Body // body returns an empty body of the kind.
	scope Scope
	trail Trail
	keep  Keep
}

// eventKinds is the table of kinds. Each row is in the file that defines the body of its kind.
var eventKinds = tableOf(jobEvents, runEvents, nodeEvents, joinEvents, dataEvents, fleetEvents, operatorEvents, remoteEvents, inventoryEvents)

func tableOf(parts ...[]eventKind) map[string]eventKind {
	out := map[string]eventKind{}
	for _, row := range slices.Concat(parts...) {
		out[row.body().Kind()] = row
	}
	return out
}

// Kinds returns the kinds of all events, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(eventKinds)) }

// ScopeOf returns which watch shows the events of a kind. No watch shows the events of an unknown
// kind.
func ScopeOf(kind string) Scope { return cmp.Or(eventKinds[kind].scope, ScopeNone) }

// TrailOf returns for which events of a kind the audit trail keeps the full bytes.
func TrailOf(kind string) Trail { return cmp.Or(eventKinds[kind].trail, TrailOperators) }

// KeepOf returns how long a snapshot keeps the events of a kind. KeepOf returns an empty value for
// a kind that this release does not know.
func KeepOf(kind string) Keep { return eventKinds[kind].keep }

// eventVersion is the version of an event's encoding.
const eventVersion = 1

type eventJSON struct {
	Version int             `json:"v"`
	Seq     uint64          `json:"seq,omitempty"`
	Kind    string          `json:"kind"`
	At      time.Time       `json:"at"`
	By      string          `json:"by"`
	Data    json.RawMessage `json:"data"`
}

// MarshalJSON encodes an event as the log keeps it. MarshalJSON writes an event of a later release
// unchanged.
func (e Event) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(e.Body)
	if err != nil {
		return nil, fmt.Errorf("encode %s event: %w", e.Body.Kind(), err)
	}
	version := eventVersion
	if b, ok := e.Body.(*UnknownEvent); ok {
		version = b.Version
	}
	return json.Marshal(eventJSON{Version: version, Seq: e.Seq, Kind: e.Body.Kind(), At: e.At.UTC(), By: e.By, Data: data})
}

// UnmarshalJSON decodes an event of the log. An unknown kind or version is an error and is never
// skipped, because an earlier release must not fold the log of a later release. UnmarshalJSON also
// returns an error for a body that no fold can use (see the body's Validate method).
func (e *Event) UnmarshalJSON(raw []byte) error {
	in, err := readEvent(raw)
	if err != nil {
		return err
	}
	if !in.known() {
		return Errorf(CodeInvalid, "event of kind %q, version %d: not known to this release; the log was written by a later one", in.Kind, in.Version)
	}
	body, err := in.body()
	if err != nil {
		return err
	}
	if b, ok := body.(interface{ Validate() error }); ok {
		if err := b.Validate(); err != nil {
			return Wrap(CodeInvalid, err, "event %d of kind %q", in.Seq, in.Kind)
		}
	}
	*e = in.event(body)
	return nil
}

// ViewEvent decodes an event that a program only shows. A viewer may be older than the server. If
// the viewer does not know the kind of an event, the event's body is an UnknownEvent. An event of a known kind may
// contain words that this release does not know. No code may base a decision on the result of ViewEvent.
func ViewEvent(raw []byte) (Event, error) {
	in, err := readEvent(raw)
	if err != nil {
		return Event{}, err
	}
	if !in.known() {
		return in.event(&UnknownEvent{Name: in.Kind, Version: in.Version, Data: in.Data}), nil
	}
	body, err := in.body()
	if err != nil {
		return Event{}, err
	}
	if b, ok := body.(*JobStarted); ok {
		if err := b.Plan.validateEdges(); err != nil {
			return Event{}, Wrap(CodeInvalid, err, "event %d of kind %q", in.Seq, in.Kind)
		}
	}
	return in.event(body), nil
}

// UnknownEvent is the body of an event of a later release, as a viewer sees it.
type UnknownEvent struct {
	Name    string
	Version int
	Data    json.RawMessage // as it came
}

// Kind implements Body.
func (b *UnknownEvent) Kind() string { return b.Name }

// ID implements Body. ID is empty, because this release cannot read the ID in the body.
func (*UnknownEvent) ID() string { return "" }

// MarshalJSON returns the body unchanged.
func (b *UnknownEvent) MarshalJSON() ([]byte, error) { return b.Data.MarshalJSON() }

func readEvent(raw []byte) (eventJSON, error) {
	var in eventJSON
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, Wrap(CodeInvalid, err, "event")
	}
	if year := in.At.UTC().Year(); year < 0 || year > 9999 { // encoding/json can decode such a time, but not encode it
		return in, Errorf(CodeInvalid, "event of kind %q: its time is in the year %d", in.Kind, year)
	}
	return in, nil
}

func (in eventJSON) known() bool {
	_, ok := eventKinds[in.Kind]
	return ok && in.Version == eventVersion
}

func (in eventJSON) body() (Body, error) {
	body := eventKinds[in.Kind].body()
	if err := json.Unmarshal(in.Data, body); err != nil {
		return nil, Wrap(CodeInvalid, err, "event %d of kind %q", in.Seq, in.Kind)
	}
	return body, nil
}

func (in eventJSON) event(body Body) Event {
	return Event{Seq: in.Seq, At: in.At, By: in.By, Body: body}
}
