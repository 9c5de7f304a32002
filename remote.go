package tutti

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
)

// RemoteAction is a request to a node's Puppet. The text of an action is the name that policies
// use.
type RemoteAction string

// The actions. Only RemoteEnable and RemoteDisable change something. RemoteRun asks whether a run
// may begin, but does not begin a run.
const (
	RemoteStatus   RemoteAction = "status"
	RemoteEnable   RemoteAction = "enable"
	RemoteDisable  RemoteAction = "disable"
	RemoteRun      RemoteAction = "runonce"
	RemoteSummary  RemoteAction = "last_run_summary"
	RemoteResource RemoteAction = "resource"
	RemoteFacts    RemoteAction = "facts"
	RemoteDiff     RemoteAction = "diff"  // compare the catalogs of two compiles (ADR 0038)
	RemoteCheck    RemoteAction = "check" // check the code of such a compile, as `tutti code check` does
	// RemoteCompare compares catalogs that the Puppet Server on the asked node compiles for other nodes.
	RemoteCompare RemoteAction = "compare"
)

// RemoteActions are all actions, sorted.
var RemoteActions = []RemoteAction{RemoteCheck, RemoteCompare, RemoteDiff, RemoteDisable, RemoteEnable, RemoteFacts, RemoteSummary, RemoteResource, RemoteRun, RemoteStatus}

// Effect reports whether the action changes something on the node. An action with an effect is done
// at most once.
func (a RemoteAction) Effect() bool { return a == RemoteEnable || a == RemoteDisable }

// Jobs returns how many jobs the action is about.
func (a RemoteAction) Jobs() int {
	switch a {
	case RemoteDiff:
		return 2
	case RemoteCheck:
		return 1
	default:
		return 0
	}
}

// Compiles reports whether the action is about compiles that nobody applies. Whoever may compile on a node may ask.
func (a RemoteAction) Compiles() bool {
	return a == RemoteDiff || a == RemoteCheck || a == RemoteCompare
}

// Limits of a question.
const (
	MaxRemoteMessage = 500 // bytes of the reason for disabling
	MaxRemoteTitle   = 1024
	// MaxRemoteWait is how long a question may wait for nodes.
	MaxRemoteWait = 5 * time.Minute
	// DefaultRemoteWait is the waiting time if the operator does not set one.
	DefaultRemoteWait = 10 * time.Second
)

// RemoteVerdict is the result of a question to one node.
type RemoteVerdict string

// The verdicts.
const (
	RemoteOK        RemoteVerdict = "ok"
	RemoteFailed    RemoteVerdict = "failed"    // the node says why
	RemoteRefused   RemoteVerdict = "refused"   // by the node's policy
	RemoteSilent    RemoteVerdict = "silent"    // no answer in time
	RemoteAway      RemoteVerdict = "away"      // the node is not connected, so the server did not ask it
	RemoteUndecided RemoteVerdict = "undecided" // the server does not know whether the node is selected
)

// RemoteAnswer is the result of an action. The action decides which field is set.
type RemoteAnswer struct {
	Status   *PuppetStatus   `json:"status,omitempty"`
	Summary  *RunSummary     `json:"summary,omitempty"`
	Resource json.RawMessage `json:"resource,omitempty"`
	Facts    json.RawMessage `json:"facts,omitempty"`
	Diff     *CatalogDiff    `json:"diff,omitempty"`
	Check    *CodeChecked    `json:"check,omitempty"`
	Served   []ServedDiff    `json:"served,omitempty"`
}

// PuppetStatus is the state of a node's Puppet. Status is the first of these words that is true: `disabled`, `applying
// a catalog`, `idling` (a daemon waits), `stopped`.
type PuppetStatus struct {
	Applying      bool `json:"applying"`
	Idling        bool `json:"idling"`
	Enabled       bool `json:"enabled"`
	DaemonPresent bool `json:"daemon_present"`
	// LastRun is in seconds since 1970. LastRun is 0 if Puppet has never run.
	LastRun        int64  `json:"lastrun"`
	SinceLastRun   int64  `json:"since_lastrun"` // seconds
	Status         string `json:"status"`
	DisableMessage string `json:"disable_message,omitempty"`
	Message        string `json:"message"`
}

// PuppetFiles is what Puppet's own files on a node say, apart from reports.
type PuppetFiles struct {
	// The field Every is `runinterval` of puppet.conf. Every is 0 if puppet.conf does not have it.
	Every time.Duration `json:"every,omitempty"`
	// Environment is `environment` of puppet.conf. Environment is empty if puppet.conf does not have it.
	Environment string          `json:"environment,omitempty"`
	Disabled    *PuppetDisabled `json:"disabled,omitempty"` // nil if Puppet is enabled
}

// PuppetDisabled says who has disabled a node's Puppet. The fields By and Since are the owner and the time of
// the file that disables Puppet.
type PuppetDisabled struct {
	By      string    `json:"by,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// RunSummary is Puppet's summary of its last run. If a run failed before it applied anything,
// Failed is set and there are no counts.
type RunSummary struct {
	Failed             bool           `json:"failed"` // the run failed as a whole, before it applied a catalog
	TotalResources     int64          `json:"total_resources"`
	OutOfSyncResources int64          `json:"out_of_sync_resources"`
	FailedResources    int64          `json:"failed_resources"`
	CorrectedResources int64          `json:"corrected_resources"`
	ChangedResources   int64          `json:"changed_resources"`
	ConfigRetrieval    float64        `json:"config_retrieval_time"` // seconds
	TotalTime          float64        `json:"total_time"`            // seconds
	LastRun            int64          `json:"lastrun"`
	SinceLastRun       int64          `json:"since_lastrun"`
	ConfigVersion      string         `json:"config_version,omitempty"`
	TypeDistribution   map[string]int `json:"type_distribution,omitempty"`
	Message            string         `json:"message,omitempty"`
}

// RemoteRequest is a question in the form that one node gets (RingRemote).
type RemoteRequest struct {
	Request string          `json:"request"` // its id
	Action  RemoteAction    `json:"action"`
	Caller  string          `json:"caller"` // `operator:NAME`
	Message string          `json:"message,omitempty"`
	Force   bool            `json:"force,omitempty"`
	Type    string          `json:"type,omitempty"`
	Title   string          `json:"title,omitempty"`
	Facts   []string        `json:"facts,omitempty"` // names of top-level facts; empty: all facts
	Wait    time.Duration   `json:"wait,omitempty"`  // how long the server waits
	Jobs    []JobID         `json:"jobs,omitempty"`  // the two jobs whose compiles are compared; empty: can the node compare?
	Served  *ServedQuestion `json:"served,omitempty"`
	// Signed is the statement that the operator has signed for this node. The other fields repeat the
	// content of Signed for older agents.
	Signed *Statement `json:"signed,omitempty"`
	// Unknown is the error if the question has fields that this release does not know.
	Unknown error `json:"-"`
}

// UnmarshalJSON reads a question. UnmarshalJSON also accepts a question with an unknown field, so
// that the node can answer it. Validate then refuses the question.
func (r *RemoteRequest) UnmarshalJSON(raw []byte) error {
	type fields RemoteRequest
	var in fields
	unknown := Strictly(raw, &in)
	if unknown != nil {
		if err := json.Unmarshal(raw, &in); err != nil {
			return err
		}
	}
	*r = RemoteRequest(in)
	r.Unknown = unknown
	return nil
}

// Validate refuses questions of a later release. Validate also refuses text that could have
// another meaning in a file or on a command line.
func (r RemoteRequest) Validate() error {
	switch {
	case r.Unknown != nil:
		return Wrap(CodeInvalid, r.Unknown, "a question of a later release")
	case !slices.Contains(RemoteActions, r.Action):
		return Errorf(CodeInvalid, "action %q: this release knows %s", string(r.Action), JoinWords(RemoteActions))
	case len(r.Jobs) != 0 && len(r.Jobs) != r.Action.Jobs():
		return Errorf(CodeInvalid, "%s with %d jobs: diff takes two jobs, check takes one, and the others none", r.Action, len(r.Jobs))
	case (r.Served != nil) != (r.Action == RemoteCompare):
		return Errorf(CodeInvalid, "only the action compare names environments and nodes of a Puppet Server, and it must name them")
	case r.Served != nil && r.Served.Validate() != nil:
		return r.Served.Validate()
	case len(r.Message) > MaxRemoteMessage:
		return Errorf(CodeInvalid, "a message of %d bytes, at most %d", len(r.Message), MaxRemoteMessage)
	case strings.ContainsFunc(r.Message, unicode.IsControl):
		return Errorf(CodeInvalid, "message %q: one line, without control characters", r.Message)
	case r.Action == RemoteResource && ValidateType(capital(r.Type)) != nil:
		return Errorf(CodeInvalid, "resource type %q: a name like file or swift::ringsync", r.Type)
	case len(r.Title) > MaxRemoteTitle || strings.ContainsFunc(r.Title, unicode.IsControl) || strings.HasPrefix(r.Title, "-"):
		return Errorf(CodeInvalid, "resource title %q: at most %d bytes, no control characters, no '-' first", r.Title, MaxRemoteTitle)
	}
	return nil
}

// capital capitalizes the name of a type, as in a reference.
func capital(name string) string {
	parts := strings.Split(name, "::")
	for i, p := range parts {
		if p != "" && p == strings.ToLower(p) {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "::")
}

// RemoteAct asks whether the node may still make a change (OpAct). An answer without an error
// allows the change once.
type RemoteAct struct {
	Request string `json:"request"`
}

// RemoteReply is a node's answer (OpAnswer). The key of the sender says which node answers.
type RemoteReply struct {
	Request string        `json:"request"`
	Verdict RemoteVerdict `json:"verdict"` // RemoteOK, RemoteFailed or RemoteRefused
	Message string        `json:"message,omitempty"`
	Rule    string        `json:"rule,omitempty"`
	RemoteAnswer
}

// MaxRemoteReply bounds a RemoteReply on the bus, in bytes.
const MaxRemoteReply = 128 << 10

// RemoteDecision counts the nodes whose policies decided a question by the same rule and with the same verdict. If
// the request only reads and is allowed, Nodes is empty.
type RemoteDecision struct {
	Verdict RemoteVerdict `json:"verdict"`
	Rule    string        `json:"rule,omitempty"`
	Count   int           `json:"count"`
	Nodes   []NodeName    `json:"nodes,omitempty"` // sorted
}

// These are the events of the remote control.
type (
	// RemoteAsked is appended before the first doorbell of a question that changes something. A
	// question to very many nodes has several RemoteAsked events with the same Request.
	RemoteAsked struct {
		Request string       `json:"request"`
		Action  RemoteAction `json:"action"`
		On      string       `json:"on"`
		Message string       `json:"message,omitempty"`
		Force   bool         `json:"force,omitempty"`
		Nodes   []NodeName   `json:"nodes"` // sorted
	}
	// RemoteAnswered says how a question of any kind ended. A question to very many nodes has several
	// RemoteAnswered events.
	RemoteAnswered struct {
		Request   string           `json:"request"`
		Action    RemoteAction     `json:"action"`
		On        string           `json:"on"`
		What      string           `json:"what,omitempty"` // a resource
		Decisions []RemoteDecision `json:"decisions"`
	}
)

// remoteEvents are the kinds of events about the remote control.
var remoteEvents = []eventKind{
	{func() Body { return new(RemoteAsked) }, ScopeNone, TrailOperators, KeepNever},
	{func() Body { return new(RemoteAnswered) }, ScopeNone, TrailOperators, KeepNever},
}

// Kind implements Body.
func (*RemoteAsked) Kind() string { return "remote.asked" }

// ID implements Body.
func (b *RemoteAsked) ID() string { return b.Request }

// Kind implements Body.
func (*RemoteAnswered) Kind() string { return "remote.answered" }

// ID implements Body.
func (b *RemoteAnswered) ID() string { return b.Request }
