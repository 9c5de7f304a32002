// Package retain says which events of the log a fold still needs: what a
// snapshot keeps. It is pure. Each kind of event has one rule: the table of kinds
// (tutti.KeepOf) names one that several kinds share, or the kind has its own here.
//
//	last of its key       fleet file, code, value, exports, snapshot
//	last few of its node  runs that Tutti did not start
//	while something lives token, job, run, and what an operator was given
//	for ever              who joined and who left: a key that was let out stays out
//	never again           denials, retired jobs
//
// The contract, which a property test holds on logs of the real server: for every
// cut of a log, folding the needed events before the cut and then the rest gives
// the state that folding all of it gives.
package retain

import (
	"time"

	"github.com/tutti-project/tutti"
)

// tokenGrace is how long a token that nobody can use any more is known by name,
// so that whoever presents it is told why it is refused.
const tokenGrace = 30 * 24 * time.Hour

// Ledger is what the rules must know of a sequence of events. First it is told all
// of them in order (Add), then it says of each whether it is needed (Needs).
type Ledger struct {
	now      time.Time
	last     map[string]uint64 // of each key
	codes    map[tutti.JobID]tutti.Digest
	goes     map[string]tutti.Digest // the code with which an environment goes on while the last push is held
	finished map[tutti.JobID]bool
	jobs     map[tutti.RunID]tutti.JobID
	nodes    map[tutti.RunID]tutti.NodeName
	wanted   map[tutti.RunID]uint64
	ended    map[tutti.RunID]bool
	latest   map[tutti.NodeName]tutti.RunID // claimed
	applies  map[tutti.RunID]bool           // full runs in mode apply
	parts    map[tutti.RunID]bool           // runs in mode apply with tags
	partial  map[tutti.NodeName][]tutti.RunID
	applied  map[tutti.NodeName]tutti.RunID // the last one of these that was claimed
	passed   map[tutti.NodeName]tutti.RunID // and that passed its gate
	reported map[tutti.NodeName]tutti.RunID // the last one whose report tells of resources
	left     map[tutti.NodeName]tutti.RunID // the last full run of these
	shown    map[tutti.NodeName]tutti.RunID // the last proof of each that has compiled since
	proofs   map[tutti.RunID]bool
	preview  map[tutti.NodeName]Previews
	previews map[tutti.RunID]tutti.Order // runs without tags that change nothing: mode and code
	since    map[tutti.NodeName]uint64   // its last claim: from there on its changes of values count
	overlays map[overlay]uint64
	values   map[string]*value
	tokens   map[tutti.TokenID]time.Time
	enrolled map[tutti.NodeName]tutti.TokenID
	keys     map[tutti.NodeName]tutti.NodeKey
	foreign  map[tutti.NodeName]Foreigns
}

type overlay struct {
	job  tutti.JobID
	node tutti.NodeName
}

// value is what is known of a key. Sets is the last time that each owner set it.
type value struct {
	last  uint64
	owner tutti.NodeName
	gone  bool // with the node that owned it
	sets  map[tutti.NodeName]uint64
	// Of a secret: its id, and the events behind the last one that gave it more pieces.
	secret string
	pieces []uint64
}

// New returns a ledger of no events.
func New() *Ledger {
	return &Ledger{
		last:     map[string]uint64{},
		codes:    map[tutti.JobID]tutti.Digest{},
		goes:     map[string]tutti.Digest{},
		finished: map[tutti.JobID]bool{},
		jobs:     map[tutti.RunID]tutti.JobID{},
		nodes:    map[tutti.RunID]tutti.NodeName{},
		wanted:   map[tutti.RunID]uint64{},
		ended:    map[tutti.RunID]bool{},
		latest:   map[tutti.NodeName]tutti.RunID{},
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
		tokens:   map[tutti.TokenID]time.Time{},
		enrolled: map[tutti.NodeName]tutti.TokenID{},
		keys:     map[tutti.NodeName]tutti.NodeKey{},
		foreign:  map[tutti.NodeName]Foreigns{},
	}
}

// rule is what is done with a kind of event: what the ledger notes of it, and
// whether it is needed once the ledger knows all. No note: nothing.
type rule struct {
	note  func(l *Ledger, e tutti.Event)
	needs func(l *Ledger, e tutti.Event) bool
}

// common are the rules that need to know nothing of the kind.
var common = map[tutti.Keep]rule{
	tutti.KeepNever:   {nil, never},
	tutti.KeepLast:    {noteLast, isLast},
	tutti.KeepWithJob: {nil, needsJob},
	tutti.KeepWithRun: {nil, needsRun},
}

// rules are those of the kinds that have one of their own.
var rules = map[string]rule{
	"ca.rotated":    {nil, always}, // which certificates are gone, and who was left behind
	"epoch.begun":   {nil, always}, // the fence of each run rests on the epoch before it
	"code.pushed":   {notePush, needsPush},
	"code.released": {noteReleased, isLast},
	"code.signed":   {noteLast, needsSigned},
	"keys.trusted":  {nil, always}, // a node that was away follows them one by one

	"token.created":    {noteToken, needsToken},
	"token.revoked":    {nil, needsToken},
	"node.enrolled":    {noteEnrolled, always},
	"node.removed":     {noteRemoved, always},
	"node.replaceable": {noteNode, isLastOfNode},

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

// ruleOf returns the rule of a kind of event, false if there is none: such an event is
// always needed.
func ruleOf(kind string) (rule, bool) {
	if r, ok := common[tutti.KeepOf(kind)]; ok {
		return r, true
	}
	r, ok := rules[kind]
	return r, ok
}

// Known reports whether there is exactly one rule for a kind of event: one that it
// shares with others, or one of its own.
func Known(kind string) bool {
	_, own := rules[kind]
	return own == (tutti.KeepOf(kind) == tutti.KeepOwn) && tutti.KeepOf(kind) != ""
}

// Add notes the next event.
func (l *Ledger) Add(e tutti.Event) {
	if e.At.After(l.now) {
		l.now = e.At
	}
	if r, _ := ruleOf(e.Body.Kind()); r.note != nil {
		r.note(l, e)
	}
}

// Needs reports whether a fold needs an event that was added.
func (l *Ledger) Needs(e tutti.Event) bool {
	r, ok := ruleOf(e.Body.Kind())
	return !ok || r.needs(l, e)
}

func always(*Ledger, tutti.Event) bool { return true }

func never(*Ledger, tutti.Event) bool { return false }

// lastKey is for kinds of which the last one for each thing matters.
func lastKey(e tutti.Event) string { return e.Body.Kind() + " " + e.Body.ID() }

func noteLast(l *Ledger, e tutti.Event) { l.last[lastKey(e)] = e.Seq }

func isLast(l *Ledger, e tutti.Event) bool { return l.last[lastKey(e)] == e.Seq }

// Code: the current one of each environment, with which it goes on meanwhile, and that of jobs.

func notePush(l *Ledger, e tutti.Event) {
	noteLast(l, e)
	l.last[codeKey(e)] = e.Seq
	b := e.Body.(*tutti.CodePushed)
	l.goes[b.Environment] = b.Goes()
}

func noteReleased(l *Ledger, e tutti.Event) {
	noteLast(l, e)
	delete(l.goes, e.Body.ID()) // the last push has it
}

func codeKey(e tutti.Event) string { return "code " + string(e.Body.(*tutti.CodePushed).Code) }

func needsPush(l *Ledger, e tutti.Event) bool {
	if isLast(l, e) {
		return true
	}
	if l.last[codeKey(e)] != e.Seq {
		return false
	}
	if b := e.Body.(*tutti.CodePushed); l.goes[b.Environment] == b.Code {
		return true
	}
	for _, code := range l.codes {
		if code == e.Body.(*tutti.CodePushed).Code {
			return true
		}
	}
	return false
}

// needsSigned: what was signed of code counts until the code is pushed again.
func needsSigned(l *Ledger, e tutti.Event) bool {
	return isLast(l, e) && e.Seq > l.last["code "+e.Body.ID()]
}

// Operators: certificates that were issued since the operator was revoked.

func needsOperator(l *Ledger, e tutti.Event) bool {
	return e.Seq > l.last[lastKey(tutti.Event{Body: &tutti.OperatorRevoked{Operator: e.Body.ID()}})]
}
