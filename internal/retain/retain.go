// Package retain decides which events of the log a fold still needs. A snapshot keeps these
// events. The package is pure. Each kind of event has one rule. A kind uses a shared rule
// from the table of kinds (tutti.KeepOf), or has its own rule here.
//
//	last of its key       fleet file, code, value, exports, snapshot
//	last few of its node  runs that no server ordered
//	while something lives token, job, run, and certificates of operators
//	for ever              which nodes joined and left, so that removed keys stay out
//	never again           denials, retired jobs
//
// The following contract must be true for every cut of a log. If a fold gets the needed
// events before the cut and then the rest of the log, the fold's state is the same as after all events. A property test
// checks this contract on logs of the real server.
package retain

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// tokenGrace is how long the server remembers an expired token, so that the server can tell a machine why it refuses
// this token.
const tokenGrace = 30 * 24 * time.Hour

// Ledger collects the data that the rules need about a sequence of events. First, the caller passes all events to
// the method Add, in order. After that, the method Needs reports for each event whether it is needed.
type Ledger struct {
	now      time.Time
	last     map[string]uint64 // sequence of the last event for each key
	codes    map[tutti.JobID][]tutti.Digest
	goes     map[string]tutti.Digest   // the code that an environment still uses while the last push is held
	recent   map[string][]tutti.Digest // the latest codes of each environment, the last push first
	finished map[tutti.JobID]bool
	jobs     map[tutti.RunID]tutti.JobID
	nodes    map[tutti.RunID]tutti.NodeName
	wanted   map[tutti.RunID]uint64
	ended    map[tutti.RunID]bool
	latest   map[tutti.NodeName]tutti.RunID // the last run that each node claimed
	own      map[tutti.NodeName]tutti.RunID // the same, without compiles for a diff
	diffs    map[tutti.RunID]bool           // compiles for a diff
	applies  map[tutti.RunID]bool           // full runs in mode apply
	parts    map[tutti.RunID]bool           // runs in mode apply that have tags
	partial  map[tutti.NodeName][]tutti.RunID
	applied  map[tutti.NodeName]tutti.RunID // the last claimed full run
	passed   map[tutti.NodeName]tutti.RunID // the last full run that passed its gate, or proved that its node is good
	reported map[tutti.NodeName]tutti.RunID // the last run whose report has resources
	left     map[tutti.NodeName]tutti.RunID // the last full run whose report has resources
	shown    map[tutti.NodeName]tutti.RunID // the last proof that compiled after the run in `passed`
	proofs   map[tutti.RunID]bool
	preview  map[tutti.NodeName]Previews
	previews map[tutti.RunID]tutti.Order // runs without tags that change nothing, with their mode and code
	since    map[tutti.NodeName]uint64   // the last claim; only changes of values after this claim count
	overlays map[overlay]uint64
	values   map[string]*value
	// answered has, for each node, the first answer of the ENC since there was none.
	answered map[tutti.NodeName]uint64
	tokens   map[tutti.TokenID]time.Time
	enrolled map[tutti.NodeName]tutti.TokenID
	keys     map[tutti.NodeName]tutti.NodeKey
	foreign  map[tutti.NodeName]Foreigns
}

type overlay struct {
	job  tutti.JobID
	node tutti.NodeName
}

// value is what the ledger knows about a key. For each owner, the map `sets` has the last event with which this owner
// set the key.
type value struct {
	last  uint64
	owner tutti.NodeName
	gone  bool // the node that owned the value was removed
	sets  map[tutti.NodeName]uint64
	// For a secret: the secret's id, and the events that added pieces after the event `last`.
	secret string
	pieces []uint64
}

// New returns a ledger without events.
func New() *Ledger {
	return &Ledger{
		last:     map[string]uint64{},
		codes:    map[tutti.JobID][]tutti.Digest{},
		goes:     map[string]tutti.Digest{},
		recent:   map[string][]tutti.Digest{},
		finished: map[tutti.JobID]bool{},
		jobs:     map[tutti.RunID]tutti.JobID{},
		nodes:    map[tutti.RunID]tutti.NodeName{},
		wanted:   map[tutti.RunID]uint64{},
		ended:    map[tutti.RunID]bool{},
		latest:   map[tutti.NodeName]tutti.RunID{},
		own:      map[tutti.NodeName]tutti.RunID{},
		diffs:    map[tutti.RunID]bool{},
		applies:  map[tutti.RunID]bool{},
		parts:    map[tutti.RunID]bool{},
		partial:  map[tutti.NodeName][]tutti.RunID{},
		applied:  map[tutti.NodeName]tutti.RunID{},
		passed:   map[tutti.NodeName]tutti.RunID{},
		reported: map[tutti.NodeName]tutti.RunID{},
		left:     map[tutti.NodeName]tutti.RunID{},
		shown:    map[tutti.NodeName]tutti.RunID{},
		proofs:   map[tutti.RunID]bool{},
		preview:  map[tutti.NodeName]Previews{},
		previews: map[tutti.RunID]tutti.Order{},
		since:    map[tutti.NodeName]uint64{},
		overlays: map[overlay]uint64{},
		values:   map[string]*value{},
		answered: map[tutti.NodeName]uint64{},
		tokens:   map[tutti.TokenID]time.Time{},
		enrolled: map[tutti.NodeName]tutti.TokenID{},
		keys:     map[tutti.NodeName]tutti.NodeKey{},
		foreign:  map[tutti.NodeName]Foreigns{},
	}
}

// rule is the rule for a kind of event. The function `note` notes the event. After all events are noted, the function
// `needs` reports whether the event is needed. If `note` is nil, nothing is noted.
type rule struct {
	note  func(l *Ledger, e tutti.Event)
	needs func(l *Ledger, e tutti.Event) bool
}

// common has the rules that several kinds share.
var common = map[tutti.Keep]rule{
	tutti.KeepNever:   {nil, never},
	tutti.KeepLast:    {noteLast, isLast},
	tutti.KeepWithJob: {nil, needsJob},
	tutti.KeepWithRun: {nil, needsRun},
}

// rules maps some kinds of events to their own rules.
var rules = map[string]rule{
	"ca.rotated":    {nil, always}, // shows which certificates have ended, and which nodes have not followed a rotation
	"epoch.begun":   {nil, always}, // without these events a fold would give later runs the wrong epoch in their fences
	"code.pushed":   {notePush, needsPush},
	"code.released": {noteReleased, isLast},
	"code.retired":  {noteCodeRetired, isLast},
	"code.signed":   {noteLast, needsSigned},
	"keys.trusted":  {nil, always}, // a node that was disconnected needs each statement that it missed, one by one

	"token.created":    {noteToken, needsToken},
	"token.revoked":    {nil, needsToken},
	"node.enrolled":    {noteEnrolled, always},
	"node.removed":     {noteRemoved, always},
	"node.pending":     {nil, always}, // an approval counts for one of several certificates of a name
	"node.approved":    {nil, always},
	"node.rejected":    {nil, always},
	"node.replaceable": {noteNode, isLastOfNode},
	"node.classified":  {noteClassified, needsClassified},

	"job.started":  {noteJob, needsJob},
	"job.finished": {noteFinished, needsJob},
	"job.retired":  {noteRetired, never},

	"converge.finished": {noteDiverged, needsDiverged},
	"target.paused":     {notePaused, isPaused},
	"target.unpaused":   {notePaused, never},

	"run.wanted":   {noteWanted, needsRun},
	"run.claimed":  {noteClaimed, needsRun},
	"run.compiled": {noteCompiled, needsRun},
	"run.gated":    {noteGated, needsRun},
	"run.proved":   {notePassed, needsRun},
	"run.finished": {noteResult, needsRun},
	"run.lost":     {noteEnded, needsRun},
	"run.foreign":  {noteForeign, needsForeign},

	"exports.set": {noteExports, needsExports},
	"value.set":   {noteValue, needsValue},
	"value.unset": {noteValue, needsValue},

	"secret.sealed": {noteValue, needsValue},

	"operator.issued": {nil, needsOperator},
}

// ruleOf returns the rule of a kind of event, or false if the kind has no rule. An event without a
// rule is always needed.
func ruleOf(kind string) (rule, bool) {
	if r, ok := common[tutti.KeepOf(kind)]; ok {
		return r, true
	}
	r, ok := rules[kind]
	return r, ok
}

// Known reports whether a kind of event has exactly one rule, either a shared one or
// its own.
func Known(kind string) bool {
	_, own := rules[kind]
	return own == (tutti.KeepOf(kind) == tutti.KeepOwn) && tutti.KeepOf(kind) != ""
}

// Add notes the next event of the log.
func (l *Ledger) Add(e tutti.Event) {
	if e.At.After(l.now) {
		l.now = e.At
	}
	if r, _ := ruleOf(e.Body.Kind()); r.note != nil {
		r.note(l, e)
	}
}

// Needs reports whether a fold needs an event. The event must have been added before.
func (l *Ledger) Needs(e tutti.Event) bool {
	r, ok := ruleOf(e.Body.Kind())
	return !ok || r.needs(l, e)
}

func always(*Ledger, tutti.Event) bool { return true }

func never(*Ledger, tutti.Event) bool { return false }

// lastKey returns the key of an event if only the last event of its kind and id is needed.
func lastKey(e tutti.Event) string { return e.Body.Kind() + " " + e.Body.ID() }

func noteLast(l *Ledger, e tutti.Event) { l.last[lastKey(e)] = e.Seq }

func isLast(l *Ledger, e tutti.Event) bool { return l.last[lastKey(e)] == e.Seq }

// KeptCodes is how many codes of an environment are kept, the latest ones.
const KeptCodes = 10

// Code: the latest codes of each environment are kept. While the current code is held, the code that is still in use is
// also kept. The code of jobs is kept as well.

func notePush(l *Ledger, e tutti.Event) {
	noteLast(l, e)
	l.last[codeKey(e)] = e.Seq
	b := e.Body.(*tutti.CodePushed)
	l.goes[b.Environment] = b.Goes()
	recent := slices.DeleteFunc(l.recent[b.Environment], func(code tutti.Digest) bool { return code == b.Code })
	recent = append([]tutti.Digest{b.Code}, recent...)
	l.recent[b.Environment] = recent[:min(KeptCodes, len(recent))]
}

func noteCodeRetired(l *Ledger, e tutti.Event) {
	noteLast(l, e)
	b := e.Body.(*tutti.CodeRetired)
	l.recent[b.Environment] = slices.DeleteFunc(l.recent[b.Environment], b.Retires)
	if b.Gone {
		delete(l.goes, b.Environment)
		delete(l.last, lastKey(tutti.Event{Body: &tutti.CodePushed{Environment: b.Environment}}))
	}
}

func noteReleased(l *Ledger, e tutti.Event) {
	noteLast(l, e)
	delete(l.goes, e.Body.ID()) // the last push has this code
}

func codeKey(e tutti.Event) string { return "code " + string(e.Body.(*tutti.CodePushed).Code) }

func needsPush(l *Ledger, e tutti.Event) bool {
	if isLast(l, e) {
		return true
	}
	if l.last[codeKey(e)] != e.Seq {
		return false
	}
	if b := e.Body.(*tutti.CodePushed); l.goes[b.Environment] == b.Code || slices.Contains(l.recent[b.Environment], b.Code) {
		return true
	}
	for _, codes := range l.codes {
		if slices.Contains(codes, e.Body.(*tutti.CodePushed).Code) {
			return true
		}
	}
	return false
}

// needsSigned reports whether a statement about code is needed. The statement is needed until the code is pushed again.
func needsSigned(l *Ledger, e tutti.Event) bool {
	return isLast(l, e) && e.Seq > l.last["code "+e.Body.ID()]
}

// Operators: the certificates that were issued since an operator's last revocation are kept.

func needsOperator(l *Ledger, e tutti.Event) bool {
	return e.Seq > l.last[lastKey(tutti.Event{Body: &tutti.OperatorRevoked{Operator: e.Body.ID()}})]
}
