package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// The calls of operators. The server implements these interfaces, and httpapi
// has a client for each. The context says which operator asks.

// Jobs starts and shows jobs.
type Jobs interface {
	StartJob(ctx context.Context, in StartJob) (tutti.JobID, error)
	CancelJob(ctx context.Context, in CancelJob) error
	ListJobs(ctx context.Context) ([]JobView, error)
	// WatchJob yields the events of a job from its start on. With Follow it
	// goes on until the job has its verdict. An error of yield ends it.
	WatchJob(ctx context.Context, in WatchJob, yield func(Watched) error) error
	// RunRecord returns what a run read and published.
	RunRecord(ctx context.Context, run tutti.RunID) (tutti.Record, error)
}

// Nodes lets nodes in and out.
type Nodes interface {
	Enrol(ctx context.Context, in EnrolRequest) (Enrolled, error)
	ListNodes(ctx context.Context) ([]NodeView, error)
	ReplaceNode(ctx context.Context, node tutti.NodeName) error
	// KeepNode says which of two machines with a node's key is the node.
	KeepNode(ctx context.Context, in KeepNode) error
	RemoveNode(ctx context.Context, node tutti.NodeName) error
}

// Tokens allow machines to join.
type Tokens interface {
	CreateToken(ctx context.Context, in CreateToken) (CreatedToken, error)
	// ListTokens returns the tokens with which a machine can still join.
	ListTokens(ctx context.Context) ([]TokenView, error)
	// RevokeToken ends a token that no node has used. CodeConflict: a node has used it.
	RevokeToken(ctx context.Context, token tutti.TokenID) error
}

// Operators lets operators in and out.
type Operators interface {
	// IssueOperator signs a certificate for a key that is not on the server.
	IssueOperator(ctx context.Context, in IssueOperator) (IssuedOperator, error)
	// RenewOperator signs a new certificate for the operator who asks, by a request (PEM).
	RenewOperator(ctx context.Context, request []byte) (IssuedOperator, error)
	ListOperators(ctx context.Context) ([]OperatorView, error)
	// RevokeOperator ends all certificates of an operator, and the calls that use
	// them. CodeConflict: no other operator is known to have one, and Last is not set.
	RevokeOperator(ctx context.Context, in RevokeOperator) error
	// ExplainAccess says whether an operator may do something by the fleet file.
	ExplainAccess(ctx context.Context, in AskAccess) (AccessAnswer, error)
}

// Codes takes code and the fleet file.
type Codes interface {
	// MissingBlobs returns those of the digests that the server does not have.
	MissingBlobs(ctx context.Context, digests []tutti.Digest) ([]tutti.Digest, error)
	PutBlob(ctx context.Context, content []byte) (tutti.Digest, error)
	PushCode(ctx context.Context, in tutti.CodePush) (tutti.CodePushed, error)
	// PushEffect says what pushing code and fleet file would cause, and changes nothing.
	PushEffect(ctx context.Context, in AskPush) (PushEffect, error)
	// ReleaseCode lets nodes run by themselves with the code of an environment (empty: the fleet file's)
	// that is held. CodeConflict: no code is held.
	ReleaseCode(ctx context.Context, environment string) (tutti.CodeReleased, error)
	// SuggestGrants returns the exports that the runs of a job were refused, and those that the old grants of the log
	// admit and a push would not (ADR 0022). An empty job is the last noop converge, if there is one.
	SuggestGrants(ctx context.Context, job tutti.JobID) (SuggestedGrants, error)
	// ShowCode says which code an environment has, and how it differs from the code before. CodeNotFound: the environment has no code.
	ShowCode(ctx context.Context, in AskCode) (CodeShown, error)
	// ReadCode returns a file of the code, or lists the files below a directory. CodeNotFound: the code has no such path.
	ReadCode(ctx context.Context, in AskCode) (CodeRead, error)
	SetFleet(ctx context.Context, in FleetSource) (tutti.Fleet, error)
	GetFleet(ctx context.Context) (tutti.Fleet, error)
}

// Signings are the calls for statements that code keys sign (ADR 0026).
type Signings interface {
	// Signing returns what a signer has to know.
	Signing(ctx context.Context) (tutti.Signing, error)
	// SignCode replaces the statement about code that nodes may be told to run: by the same text with more
	// signatures, or by the first statement. CodeNotFound: nodes cannot be told to run that code.
	SignCode(ctx context.Context, in tutti.CodeSign) error
	// TrustKeys takes the next statement about code keys. One that is there already changes nothing.
	TrustKeys(ctx context.Context, in tutti.Statement) error
	// TrustOperators takes the next list of operators who sign actions, or the same with more signatures.
	TrustOperators(ctx context.Context, in tutti.Statement) error
}

// AskPush names what would be pushed: the digest of the manifest (empty: no code) and the fleet file.
type AskPush struct {
	Code  tutti.Digest `json:"code,omitempty"`
	Fleet FleetSource  `json:"fleet"`
}

// PushEffect is which nodes need a run after a push, because they have other code or lose what they have
// published, and the first few of them.
type PushEffect struct {
	Same      bool               `json:"same,omitempty"` // the server has this code and this fleet file
	Runs      int                `json:"runs"`
	Nodes     []tutti.NodeName   `json:"nodes,omitempty"`
	Withdrawn []tutti.Withdrawal `json:"withdrawn,omitempty"` // what the fleet file does not grant any more
	// By the fleet file that would be pushed. Reactive: nodes run by themselves, as Reaction says.
	Reactive bool               `json:"reactive"`
	Reaction tutti.CodeReaction `json:"reaction,omitzero"`
	AskAbove int                `json:"ask_above,omitempty"`
}

// SuggestedGrants are grants that the fleet file does not have yet.
type SuggestedGrants struct {
	Job    tutti.JobID      `json:"job,omitempty"`
	At     time.Time        `json:"at,omitzero"`      // when it ended
	Failed []tutti.NodeName `json:"failed,omitempty"` // whose run in it did not come to its gate: they may want more
	Old    bool             `json:"old,omitempty"`    // the fleet file has grants of before 0.3.0
	Grants []SuggestedGrant `json:"grants,omitempty"`
}

// SuggestedGrant is a grant for nodes that need it. If To is empty, these nodes are in no group.
type SuggestedGrant struct {
	tutti.Grant
	Nodes []tutti.NodeName `json:"nodes"`
	Also  []tutti.NodeName `json:"also,omitempty"` // that would have it, too, and do not want it
}

// Begins is how many nodes run by themselves at the same time.
func (e PushEffect) Begins() int {
	switch {
	case !e.Reactive, e.Reaction.Confirm:
		return 0
	case e.Reaction.Canary > 0:
		return min(e.Reaction.Canary, e.Runs)
	}
	return e.Runs
}

// Values is the operators' side of the data plane.
type Values interface {
	SetValue(ctx context.Context, key string, value json.RawMessage) error
	UnsetValue(ctx context.Context, key string) error
	ListValues(ctx context.Context, prefix string) ([]ValueView, error)
	// PageValues is ListValues page by page, in the order of keys. Each page has the values of
	// the moment when it was asked for.
	PageValues(ctx context.Context, in AskValues) (ValuesPage, error)
	// Effect says what setting a key, or (without a value) unsetting it, would cause,
	// and changes nothing. CodeNotFound: there is nothing to unset.
	Effect(ctx context.Context, key string, value json.RawMessage) (Effect, error)
}

// AskValues asks for the values below a prefix whose keys are after another one.
type AskValues struct {
	Prefix string `json:"prefix,omitempty"`
	After  string `json:"after,omitempty"`
}

// ValuesPage has some values. More: there are others after the last one.
type ValuesPage struct {
	Values []ValueView `json:"values"`
	More   bool        `json:"more,omitempty"`
}

// Effect says which nodes a change makes run: those that read it themselves and would
// get another answer than they had. The publications of their runs may cause more runs.
type Effect struct {
	Runs     int           `json:"runs"`
	When     []EffectRuns  `json:"when,omitempty"`
	Reactive bool          `json:"reactive"`       // they run by themselves
	Wide     time.Duration `json:"wide,omitempty"` // of the fleet's Reaction
	AskAbove int           `json:"ask_above,omitempty"`
}

// EffectRuns is how many nodes would run at that time, and the first few of them.
// Without reactions there is no time: they run with the next `tutti converge`.
type EffectRuns struct {
	When  tutti.ReactionTime `json:"when,omitempty"`
	Runs  int                `json:"runs"`
	Nodes []tutti.NodeName   `json:"nodes"`
}

// Pauses keeps converging and reactions away from targets: a group, a node, or
// (empty) the whole fleet. Runs of plans are not affected.
type Pauses interface {
	// Pause replaces an earlier pause of the same target.
	Pause(ctx context.Context, in Pause) (PauseView, error)
	// Unpause ends a pause of exactly that target. CodeNotFound: there is no such pause.
	Unpause(ctx context.Context, target string) error
	// ListPauses returns the pauses that hold now, sorted by target.
	ListPauses(ctx context.Context) ([]PauseView, error)
}

// Audits is the log as a trail of who did what.
type Audits interface {
	// ReadAudit yields the entries of the log in order, up to the last one at the
	// time of the call, also those that have left the log.
	ReadAudit(ctx context.Context, in ReadAudit, yield func(AuditEntry) error) error
}

// ReadAudit asks for the entries after a sequence. Acts leaves out what people do
// not ask for (package audit), and with it the possibility to verify the rest.
type ReadAudit struct {
	After uint64 `json:"after,omitempty"`
	Acts  bool   `json:"acts,omitempty"`
}

// AuditEntry is an entry of the log as far as it is kept: its bytes (an Event's
// JSON, without sequence) or their digest.
type AuditEntry struct {
	Seq    uint64          `json:"seq"`
	Before tutti.Digest    `json:"before,omitempty"` // of the first one, if what was before it is not kept
	Link   tutti.Digest    `json:"link"`
	Raw    json.RawMessage `json:"event,omitempty"`
	Digest tutti.Digest    `json:"digest,omitempty"`
}

// StartJob begins a plan of the fleet file that the server has or, without a plan,
// with Converge brings nodes to where they are good, and with Runs runs Puppet on
// some nodes once.
type StartJob struct {
	Plan     tutti.PlanName      `json:"plan,omitempty"`
	Converge *tutti.ConvergeStep `json:"converge,omitempty"`
	Runs     *NodeRuns           `json:"runs,omitempty"`
	Mode     tutti.Mode          `json:"mode"`
	// Exclusive makes the plan exclusive. If the plan is exclusive already, it replaces the
	// reason. A noop run changes nothing on the nodes and is never exclusive.
	Exclusive *string `json:"exclusive,omitempty"`
}

// NodeRuns are one run on each of some nodes, at most Limit at once (0: no limit of
// its own). Each node has its own program.
type NodeRuns struct {
	Nodes []tutti.NodeName `json:"nodes"`
	Limit int              `json:"limit,omitempty"`
	tutti.RunOptions
}

// RunsPlan is the name of the plan of jobs that run on listed nodes.
const RunsPlan tutti.PlanName = "puppet"

// ConvergePlan is the name of the plan of jobs that converge.
const ConvergePlan tutti.PlanName = "converge"

// ShowPlan is a name that no plan may have, because `tutti run show` shows a run.
const ShowPlan tutti.PlanName = "show"

// CancelJob lets nothing more begin. With Now it also interrupts the runs that go on.
type CancelJob struct {
	Job    tutti.JobID `json:"job"`
	Reason string      `json:"reason,omitempty"`
	Now    bool        `json:"now,omitempty"`
}

// WatchJob names a job (empty: the latest).
type WatchJob struct {
	Job    tutti.JobID `json:"job"`
	Follow bool        `json:"follow"`
}

// Watched is an event of the log or, while it happens, something inside a run.
// Exactly one is set; none of them, if a later server tells something else.
type Watched struct {
	Event *tutti.Event `json:"event,omitempty"`
	Live  *tutti.Live  `json:"live,omitempty"`
}

// UnmarshalJSON decodes what a watcher is told; its event may be of a later release (see
// ViewEvent).
func (w *Watched) UnmarshalJSON(raw []byte) error {
	var in struct {
		Event json.RawMessage `json:"event"`
		Live  *tutti.Live     `json:"live"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	*w = Watched{Live: in.Live}
	if len(in.Event) == 0 || string(in.Event) == "null" {
		return nil
	}
	e, err := tutti.ViewEvent(in.Event)
	w.Event = &e
	return err
}

// JobView is a job in a list.
type JobView struct {
	Job       tutti.JobID    `json:"job"`
	Plan      tutti.PlanName `json:"plan"`
	Mode      tutti.Mode     `json:"mode"`
	By        string         `json:"by"`
	Cause     string         `json:"cause,omitempty"` // of a job that the server began by itself
	Verdict   tutti.Verdict  `json:"verdict,omitempty"`
	Message   string         `json:"message,omitempty"`
	StartedAt time.Time      `json:"started_at"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	Runs      int            `json:"runs"`
	Compiles  int            `json:"compiles"`
	Failed    int            `json:"failed"`
}

// KeepNode names a machine by how its boot id, or the digest of its ticket, begins; empty: the next
// one that speaks with the node's key, which is for an agent that was downgraded.
type KeepNode struct {
	Node tutti.NodeName `json:"node"`
	Boot string         `json:"boot,omitempty"`
}

// NodeView is a node in a list.
type NodeView struct {
	Node      tutti.NodeName    `json:"node"`
	Key       tutti.NodeKey     `json:"key"`
	Groups    []tutti.GroupName `json:"groups"`
	JoinedAt  time.Time         `json:"joined_at"`
	SeenAt    time.Time         `json:"seen_at,omitzero"`
	Connected bool              `json:"connected"`         // it was heard of within the time that a silent node has
	Stopped   bool              `json:"stopped,omitempty"` // its agent has said that it ends, and nothing since; nothing is decided by it
	Version   string            `json:"version,omitempty"`
	Puppet    string            `json:"puppet,omitempty"`
	// TooOldFor names what the server may ask for and the node's agent does not know.
	TooOldFor []tutti.Capability `json:"too_old_for,omitempty"`
	// OldGrants are types that it may export by a grant of before 0.3.0, and that mean root on the
	// collector: the next push of the fleet file needs `dangerous: true` for them (ADR 0022).
	OldGrants []string `json:"old_grants,omitempty"`
	// Conflicted says that two machines are the node; Machines are those that have said hello
	// since the server started, if there is more than one.
	Conflicted string          `json:"conflicted,omitempty"`
	Machines   []tutti.Machine `json:"machines,omitempty"`

	Trouble string `json:"trouble,omitempty"` // what its agent says that it cannot do
	// Unnoted is why its agent could not note runs that Tutti did not start. Until it has noted them, the node is not good.
	Unnoted string `json:"unnoted,omitempty"`
	Warm    int64  `json:"warm,omitempty"`   // bytes of memory of the process that has Puppet loaded
	Paused  string `json:"paused,omitempty"` // why nothing begins there by itself
	// Stands is how the node stands under the current code and data. NodeStanding also has the
	// reasons.
	Stands NodeState `json:"stands,omitempty"`
	// Trusts is the counter of the last statement about code keys that it follows.
	Trusts   uint64          `json:"trusts,omitempty"`
	Active   tutti.RunID     `json:"active,omitempty"`
	HeldBy   tutti.JobID     `json:"held_by,omitempty"` // the exclusive job to which it belongs for now
	LastRun  tutti.RunID     `json:"last_run,omitempty"`
	LastJob  tutti.JobID     `json:"last_job,omitempty"`
	Outcome  tutti.Outcome   `json:"outcome,omitempty"`
	Reason   tutti.Reason    `json:"reason,omitempty"`
	Proved   bool            `json:"proved,omitempty"`  // that run has shown that the node is good, and was stopped for it
	Foreign  bool            `json:"foreign,omitempty"` // Tutti did not start that run
	Local    *tutti.Local    `json:"local,omitempty"`   // what its agent says of a foreign run that it began
	RunAt    time.Time       `json:"run_at,omitzero"`
	Message  string          `json:"message,omitempty"`
	Failures []tutti.Failure `json:"failures,omitempty"`
}

// ValueView is a value in a list.
type ValueView struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	Owner tutti.NodeName  `json:"owner,omitempty"`
	By    string          `json:"by"`
	At    time.Time       `json:"at"`
	Job   tutti.JobID     `json:"job,omitempty"`
	Run   tutti.RunID     `json:"run,omitempty"`
	Seq   uint64          `json:"seq"`
}

// Pause says which target to pause, why, and for how long (0: until it is unpaused).
type Pause struct {
	Target string        `json:"target,omitempty"`
	Reason string        `json:"reason"`
	For    time.Duration `json:"for,omitempty"`
}

// PauseView is a pause in a list.
type PauseView struct {
	Target string    `json:"target"` // empty: the whole fleet
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is unpaused
}

// CreateToken allows one machine to join under a name that fits the pattern.
type CreateToken struct {
	Name   string            `json:"name"`
	Groups []tutti.GroupName `json:"groups,omitempty"`
	TTL    time.Duration     `json:"ttl"`
}

// CreatedToken carries the token's text. It is shown only once.
type CreatedToken struct {
	Token   tutti.TokenID `json:"token"`
	Text    string        `json:"text"`
	Expires time.Time     `json:"expires"`
}

// TokenView is a token in a list.
type TokenView struct {
	Token   tutti.TokenID     `json:"token"`
	Name    string            `json:"name"` // pattern
	Groups  []tutti.GroupName `json:"groups,omitempty"`
	Expires time.Time         `json:"expires"`
}

// IssueOperator asks to let an operator in. Request is a PKCS #10 request in PEM
// form; the names in it do not matter. CodeKey notes that the operator also gets
// the code-signing key, which no server has.
type IssueOperator struct {
	Operator string `json:"operator"`
	Request  []byte `json:"request"`
	CodeKey  bool   `json:"code_key,omitempty"`
	// Follows: the client can take several CAs. A client of an earlier release gets the CA from before a rotation.
	Follows bool `json:"follows,omitempty"`
}

// IssuedOperator is a certificate and everything else that an operator needs.
type IssuedOperator struct {
	Certificate []byte       `json:"certificate"` // PEM
	CA          []byte       `json:"ca"`          // PEM, of one CA or several
	Signer      tutti.Digest `json:"signer,omitempty"`
	Server      string       `json:"server"` // URL
	Serial      string       `json:"serial"` // hexadecimal
	Expires     time.Time    `json:"expires"`
}

// OperatorView is an operator in a list.
type OperatorView struct {
	Operator     string    `json:"operator"`
	Certificates int       `json:"certificates"`     // issued by the server and good
	Expires      time.Time `json:"expires,omitzero"` // the last of them
	CodeKey      bool      `json:"code_key,omitempty"`
	Revoked      time.Time `json:"revoked,omitzero"`
	Reason       string    `json:"reason,omitempty"` // of the revocation
}

// RevokeOperator names an operator. Last allows to revoke the last one.
type RevokeOperator struct {
	Operator string `json:"operator"`
	Reason   string `json:"reason,omitempty"`
	Last     bool   `json:"last,omitempty"`
}

// EnrolRequest asks to admit Key under Name, signed by the key. Package
// identity signs and verifies it.
type EnrolRequest struct {
	Token     tutti.TokenID  `json:"token"`
	Secret    []byte         `json:"secret"`
	Name      tutti.NodeName `json:"name"`
	Key       tutti.NodeKey  `json:"key"`
	BoxKey    string         `json:"box_key"`
	Signature []byte         `json:"signature"`
}

// Enrolled is all that a node needs to come to the bus. CodeKey is the
// operators' public key, pinned by the node from now on.
type Enrolled struct {
	Node    tutti.NodeName `json:"node"`
	JWT     string         `json:"jwt"`
	CA      string         `json:"ca"`  // PEM, of one CA or several
	Bus     string         `json:"bus"` // host:port
	CodeKey string         `json:"code_key"`
	Time    time.Time      `json:"time"`          // the server's
	Was     []tutti.Digest `json:"was,omitempty"` // the CAs that this fleet had before
	// Fleet is the id of the fleet; empty: the server is of release 0.2.0 or before.
	Fleet tutti.Digest `json:"fleet,omitempty"`
	// Trust is the last statement about code keys; nil: there was none, CodeKey is the first key.
	Trust *tutti.Statement `json:"trust,omitempty"`
	// Operators is the list of operators who sign actions; nil: there is none.
	Operators *tutti.Statement `json:"operators,omitempty"`
}

// FleetSource is the text of a fleet file and the name that errors give it.
type FleetSource struct {
	File   string `json:"file"`
	Source []byte `json:"source"`
	// Statement is of kind StatementPlans; nil: it is not signed.
	Statement *tutti.Statement `json:"statement,omitempty"`
}
