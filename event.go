package tutti

import (
	"cmp"
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

// Scope says whose watch shows an event.
type Scope string

// The scopes.
const (
	ScopeJob  Scope = "job"  // of the job that its ID names
	ScopeRun  Scope = "run"  // of the run that its ID names, and of that run's job
	ScopeNode Scope = "node" // of a node; no watch of a job
	ScopeNone Scope = "none" // of nobody
)

// Trail says of which events of a kind the audit trail keeps the bytes. Of all others
// it keeps the digest.
type Trail string

// The two ways.
const (
	TrailAlways    Trail = "always"    // of all
	TrailOperators Trail = "operators" // of those that operators caused
)

// Keep says for how long a snapshot keeps the events of a kind, because a fold needs
// them.
type Keep string

// The ways.
const (
	KeepNever   Keep = "never"
	KeepLast    Keep = "last" // the last one of what its ID names
	KeepWithJob Keep = "job"  // as long as the job that its ID names
	KeepWithRun Keep = "run"  // as long as the run that its ID names
	KeepOwn     Keep = "own"  // the kind has a rule of its own in package retain
)

// eventKind is a row of the table of kinds. How people are told of a kind is a row in
// package cli, where a test holds that every kind has one.
type eventKind struct {
	body  func() Body // an empty one, which names the kind
	scope Scope
	trail Trail
	keep  Keep
}

// eventKinds is the table of kinds: the rows lie beside the bodies.
var eventKinds = tableOf(jobEvents, runEvents, nodeEvents, dataEvents, fleetEvents, operatorEvents, remoteEvents)

func tableOf(parts ...[]eventKind) map[string]eventKind {
	out := map[string]eventKind{}
	for _, row := range slices.Concat(parts...) {
		out[row.body().Kind()] = row
	}
	return out
}

// Kinds returns the kinds of all events, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(eventKinds)) }

// ScopeOf returns whose watch shows the events of a kind. No watch shows the events
// of an unknown kind.
func ScopeOf(kind string) Scope { return cmp.Or(eventKinds[kind].scope, ScopeNone) }

// TrailOf returns of which events of a kind the audit trail keeps the bytes.
func TrailOf(kind string) Trail { return cmp.Or(eventKinds[kind].trail, TrailOperators) }

// KeepOf returns for how long a snapshot keeps the events of a kind. It is empty for a
// kind that this release does not know.
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

// MarshalJSON encodes an event as the log keeps it, one of a later release as it came.
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

// UnmarshalJSON decodes an event as the log does: an unknown kind or version is an
// error, never skipped, because a log of a later release must not be folded by an
// earlier one. A body that no fold can use (see its Validate method) is an error, too.
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

// ViewEvent decodes an event to be shown. A viewer may be older than the server: an
// event of a kind that it does not know has an UnknownEvent as its body, and a known
// one may have words that this release does not know. Nothing may be decided by it.
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

// UnknownEvent is what a viewer knows of an event of a later release.
type UnknownEvent struct {
	Name    string
	Version int
	Data    json.RawMessage // as it came
}

// Kind implements Body.
func (b *UnknownEvent) Kind() string { return b.Name }

// ID implements Body. Nobody knows which thing the event happened to.
func (*UnknownEvent) ID() string { return "" }

// MarshalJSON encodes the body as it came.
func (b *UnknownEvent) MarshalJSON() ([]byte, error) { return b.Data.MarshalJSON() }

func readEvent(raw []byte) (eventJSON, error) {
	var in eventJSON
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, Wrap(CodeInvalid, err, "event")
	}
	if year := in.At.UTC().Year(); year < 0 || year > 9999 { // it could not be encoded again
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
