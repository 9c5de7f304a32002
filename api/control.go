package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// The calls of operators. The server implements these interfaces, and httpapi has a client for
// each. The context contains the operator who calls.

// Jobs starts and shows jobs.
type Jobs interface {
	StartJob(ctx context.Context, in StartJob) (tutti.JobID, error)
	CancelJob(ctx context.Context, in CancelJob) error
	ListJobs(ctx context.Context) ([]JobView, error)
	// WatchJob yields the events of a job from its start on. With Follow, WatchJob continues until
	// the job has its verdict. WatchJob stops if the function yield returns an error.
	WatchJob(ctx context.Context, in WatchJob, yield func(Watched) error) error
	// RunRecord returns the record of a run: what the run read and published.
	RunRecord(ctx context.Context, run tutti.RunID) (tutti.Record, error)
}

// Nodes adds and removes nodes.
type Nodes interface {
	Enrol(ctx context.Context, in EnrolRequest) (Enrolled, error)
	// EnrolByCertificate is like Enrol, but the proof is a Puppet certificate (ADR 0031).
	EnrolByCertificate(ctx context.Context, in JoinRequest) (JoinAnswer, error)
	// ListPending returns the machines that wait for approval, and the machines that an operator has rejected.
	ListPending(ctx context.Context) ([]PendingView, error)
	// ApproveNode lets a machine join that waits. RejectNode refuses it.
	ApproveNode(ctx context.Context, in ApproveNode) error
	RejectNode(ctx context.Context, in RejectNode) error
	ListNodes(ctx context.Context) ([]NodeView, error)
	ReplaceNode(ctx context.Context, node tutti.NodeName) error
	// KeepNode chooses which of two machines with the same node key is the node.
	KeepNode(ctx context.Context, in KeepNode) error
	RemoveNode(ctx context.Context, node tutti.NodeName) error
}

// Tokens allow machines to join.
type Tokens interface {
	CreateToken(ctx context.Context, in CreateToken) (CreatedToken, error)
	// ListTokens returns the tokens that a machine can still use to join.
	ListTokens(ctx context.Context) ([]TokenView, error)
	// RevokeToken ends a token. The error is CodeConflict if the token was for one machine, and this machine has joined.
	// Machines that have joined with a token for several machines stay.
	RevokeToken(ctx context.Context, token tutti.TokenID) error
	// SetJoinCA tells the server the Puppet CA of the site. The answer describes the CA.
	SetJoinCA(ctx context.Context, in SetJoinCA) (JoinCAView, error)
	ShowJoinCA(ctx context.Context) (JoinCAView, error)
}

// Operators adds and removes operators.
type Operators interface {
	// IssueOperator signs a certificate for a key that the server does not have.
	IssueOperator(ctx context.Context, in IssueOperator) (IssuedOperator, error)
	// RenewOperator signs a new certificate for the calling operator. The argument request is a certificate request
	// (PEM).
	RenewOperator(ctx context.Context, request []byte) (IssuedOperator, error)
	ListOperators(ctx context.Context) ([]OperatorView, error)
	// RevokeOperator makes all certificates of an operator invalid, and ends the calls that use them.
	// To revoke the last operator who is known to have a certificate, the call must set Last. If Last
	// is missing, the error is CodeConflict. RevokeOperator also cancels the operator's jobs that
	// have not begun on a node. With CancelJobs it cancels the operator's other jobs, too.
	RevokeOperator(ctx context.Context, in RevokeOperator) (RevokedOperator, error)
	// ExplainAccess says whether the fleet file gives an operator a verb for a target.
	ExplainAccess(ctx context.Context, in AccessQuery) (AccessAnswer, error)
}

// Codes stores code and the fleet file.
type Codes interface {
	CodeHistory
	// MissingBlobs returns the digests whose content the server does not have.
	MissingBlobs(ctx context.Context, digests []tutti.Digest) ([]tutti.Digest, error)
	PutBlob(ctx context.Context, content []byte) (tutti.Digest, error)
	PushCode(ctx context.Context, in tutti.CodePush) (tutti.CodePushed, error)
	// PushEffect says which runs a push of code and fleet file would cause. It changes nothing.
	PushEffect(ctx context.Context, in PushQuery) (PushEffect, error)
	// ReleaseCode releases the held code of an environment, so that nodes run this code by themselves.
	// An empty environment means the fleet file's environment. The error is CodeConflict if the
	// environment has no held code.
	ReleaseCode(ctx context.Context, environment string) (tutti.CodeReleased, error)
	// SuggestGrants returns grants for the exports that the server refused in the runs of a job. If an old grant in the
	// log allows an export but a new push would not, SuggestGrants also returns a grant for this export (ADR 0022). An
	// empty job means the last noop converge, if there is one.
	SuggestGrants(ctx context.Context, job tutti.JobID) (SuggestedGrants, error)
	// ShowCode says which code an environment has, and how this code differs from the earlier code. The error is
	// CodeNotFound if the environment has no code.
	ShowCode(ctx context.Context, in CodeQuery) (CodeShown, error)
	// ReadCode returns a file of the code, or the list of files below a directory. The error is CodeNotFound if the
	// code does not have the path.
	ReadCode(ctx context.Context, in CodeQuery) (CodeRead, error)
	SetFleet(ctx context.Context, in FleetSource) (tutti.Fleet, error)
	GetFleet(ctx context.Context) (tutti.Fleet, error)
}

// Signings are the calls for statements that code keys sign (ADR 0026).
type Signings interface {
	// Signing returns the earlier statements that a signer needs.
	Signing(ctx context.Context) (tutti.Signing, error)
	// SignCode stores a statement about code that the server may order nodes to run. The statement has
	// more signatures than the stored statement with the same text, or is the first statement about this
	// code. The error is CodeNotFound if the server may not order nodes to run that code.
	SignCode(ctx context.Context, in tutti.CodeSign) error
	// TrustKeys stores the next statement about code keys. If the server already has the statement, TrustKeys changes
	// nothing.
	TrustKeys(ctx context.Context, in tutti.Statement) error
	// TrustOperators stores the next list of operators who sign actions, or the present list with more signatures.
	TrustOperators(ctx context.Context, in tutti.Statement) error
}

// PushQuery names the content of a possible push: the digests of the manifests and the fleet file. Code is of the
// environment of the fleet file, and Codes has the other environments. An environment whose code is not pushed has no
// digest. If Fleet has no source, only code is pushed.
type PushQuery struct {
	Code  tutti.Digest            `json:"code,omitempty"`
	Codes map[string]tutti.Digest `json:"codes,omitempty"`
	Fleet FleetSource             `json:"fleet"`
}

// PushEffect says which nodes need a run after a push, because they would get other code or lose their
// publications. Nodes lists the first few of these nodes.
type PushEffect struct {
	Same      bool               `json:"same,omitempty"` // the server already has this code and this fleet file
	Runs      int                `json:"runs"`
	Nodes     []tutti.NodeName   `json:"nodes,omitempty"`
	Withdrawn []tutti.Withdrawal `json:"withdrawn,omitempty"`
	// The following fields come from the new fleet file. Reactive is true if nodes run by themselves, with the settings
	// in Reaction.
	Reactive bool               `json:"reactive"`
	Reaction tutti.CodeReaction `json:"reaction,omitzero"`
	AskAbove int                `json:"ask_above,omitempty"`
}

// SuggestedGrants are grants that the fleet file does not have yet.
type SuggestedGrants struct {
	Job    tutti.JobID      `json:"job,omitempty"`
	At     time.Time        `json:"at,omitzero"` // the end of the job
	Failed []tutti.NodeName `json:"failed,omitempty"`
	Old    bool             `json:"old,omitempty"` // the fleet file has grants from before 0.3.0
	Grants []SuggestedGrant `json:"grants,omitempty"`
}

// SuggestedGrant is a grant that certain nodes need. If To is empty, these nodes are in no group.
type SuggestedGrant struct {
	tutti.Grant
	Nodes []tutti.NodeName `json:"nodes"`
	Also  []tutti.NodeName `json:"also,omitempty"`
}

// Begins returns how many nodes run by themselves at the same time.
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
	// PageValues returns the same values as ListValues, page by page and in the order of keys. Each page has the values
	// at the time of its request.
	PageValues(ctx context.Context, in ValuesQuery) (ValuesPage, error)
	// Effect says which runs would begin if somebody set the key to the value. Without a value, Effect says this for
	// unsetting the key. Effect changes nothing. The error is CodeNotFound if there is no value to unset.
	Effect(ctx context.Context, key string, value json.RawMessage) (Effect, error)
}

// ValuesQuery asks for the values below a prefix. The answer has only the keys that sort after the
// key in the field After.
type ValuesQuery struct {
	Prefix string `json:"prefix,omitempty"`
	After  string `json:"after,omitempty"`
}

// ValuesPage has some values. More is true if other values follow the last one.
type ValuesPage struct {
	Values []ValueView `json:"values"`
	More   bool        `json:"more,omitempty"`
}

// Effect says which nodes run because of a change. The affected nodes read the value themselves.
// Now they would get an answer that differs from the answer in their last run. The publications of
// their runs may cause more runs.
type Effect struct {
	Runs     int           `json:"runs"`
	When     []EffectRuns  `json:"when,omitempty"`
	Reactive bool          `json:"reactive"`       // the nodes run by themselves
	Wide     time.Duration `json:"wide,omitempty"` // Reaction.Wide of the fleet
	AskAbove int           `json:"ask_above,omitempty"`
}

// EffectRuns says how many nodes would run at a certain time, and lists the first few of them. The
// field When is empty if the fleet has no reactions. The nodes then run with the next `tutti
// converge`.
type EffectRuns struct {
	When  tutti.ReactionTime `json:"when,omitempty"`
	Runs  int                `json:"runs"`
	Nodes []tutti.NodeName   `json:"nodes"`
}

// Pauses stops converging and reactions on targets. A target is a group, a node, or (if empty) the
// whole fleet. Runs of plans are not affected.
type Pauses interface {
	// The method Pause replaces an earlier pause of the same target.
	Pause(ctx context.Context, in Pause) (PauseView, error)
	// Unpause ends the pause of exactly this target. The error is CodeNotFound if this target has no pause.
	Unpause(ctx context.Context, target string) error
	// ListPauses returns the present pauses, sorted by target.
	ListPauses(ctx context.Context) ([]PauseView, error)
}

// Audits gives access to the log as an audit trail.
type Audits interface {
	// ReadAudit yields the entries of the log in order, including entries that have left the log.
	// ReadAudit ends with the last entry that the log has at the time of the call.
	ReadAudit(ctx context.Context, in ReadAudit, yield func(AuditEntry) error) error
}

// ReadAudit asks for the entries after a sequence. If Acts is set, the answer lacks the entries
// that people seldom need (package audit). An answer without these entries cannot be verified.
type ReadAudit struct {
	After uint64 `json:"after,omitempty"`
	Acts  bool   `json:"acts,omitempty"`
}

// AuditEntry is the stored part of an entry of the log: its bytes (an Event's JSON, without
// sequence) or their digest.
type AuditEntry struct {
	Seq    uint64          `json:"seq"`
	Before tutti.Digest    `json:"before,omitempty"`
	Link   tutti.Digest    `json:"link"`
	Raw    json.RawMessage `json:"event,omitempty"`
	Digest tutti.Digest    `json:"digest,omitempty"`
}

// StartJob starts a job. With Plan the job executes a plan of the server's fleet file. With
// Converge the job converges nodes until the nodes are good. With Runs the job runs Puppet once on
// some nodes. With Diff some nodes compile code that they never apply.
type StartJob struct {
	Plan     tutti.PlanName      `json:"plan,omitempty"`
	Converge *tutti.ConvergeStep `json:"converge,omitempty"`
	Runs     *NodeRuns           `json:"runs,omitempty"`
	Diff     *NodeDiff           `json:"diff,omitempty"`
	Mode     tutti.Mode          `json:"mode"`
	// If Exclusive is set, the job is exclusive, and this text is the reason. The text replaces the
	// reason of a plan that is exclusive by itself. A noop run changes nothing on the nodes and is
	// therefore never exclusive.
	Exclusive *string `json:"exclusive,omitempty"`
}

// NodeRuns is one run on each of some nodes. At most Limit nodes run at the same time. With 0 only
// the server's limits apply. Each node uses the program that the fleet file sets for this node.
type NodeRuns struct {
	Nodes []tutti.NodeName `json:"nodes"`
	Limit int              `json:"limit,omitempty"`
	tutti.RunOptions
}

// NodeDiff is code that some nodes compile, so that somebody can compare catalogs (ADR 0038). All files of the code must be
// on the server already. Nodes that cannot compile the code are named in the event that starts the job.
type NodeDiff struct {
	Nodes []tutti.NodeName `json:"nodes"`
	Limit int              `json:"limit,omitempty"` // how many nodes compile at once; 0: only the server's limit
	Code  tutti.SignedCode `json:"code"`            // with a statement of kind StatementCompile
}

// DiffPlan is the plan name of jobs that compile for a diff.
const DiffPlan tutti.PlanName = "diff"

// RunsPlan is the plan name of jobs that run on listed nodes.
const RunsPlan tutti.PlanName = "puppet"

// ConvergePlan is the plan name of jobs that converge.
const ConvergePlan tutti.PlanName = "converge"

// ShowPlan is a name that no plan may have, because the command `tutti run show` shows a run.
const ShowPlan tutti.PlanName = "show"

// CancelJob stops a job from beginning further runs. With Now the server also interrupts the job's current runs.
type CancelJob struct {
	Job    tutti.JobID `json:"job"`
	Reason string      `json:"reason,omitempty"`
	Now    bool        `json:"now,omitempty"`
}

// WatchJob names a job. If Job is empty, WatchJob means the latest job.
type WatchJob struct {
	Job    tutti.JobID `json:"job"`
	Follow bool        `json:"follow"`
}

// Watched is an event of the log, or a live message from a run. Exactly one field is set. If a
// later server sends something else, no field is set.
type Watched struct {
	Event *tutti.Event `json:"event,omitempty"`
	Live  *tutti.Live  `json:"live,omitempty"`
}

// UnmarshalJSON decodes an item of a watch. The event may come from a later release (see
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
	Job         tutti.JobID    `json:"job"`
	Plan        tutti.PlanName `json:"plan"`
	Mode        tutti.Mode     `json:"mode"`
	By          string         `json:"by"`
	Cause       string         `json:"cause,omitempty"` // Cause is set only for a job that the server began by itself.
	Verdict     tutti.Verdict  `json:"verdict,omitempty"`
	Message     string         `json:"message,omitempty"`
	StartedAt   time.Time      `json:"started_at"`
	EndedAt     time.Time      `json:"ended_at,omitzero"`
	Environment string         `json:"environment,omitempty"` // the fleet's environment when the job began
	// Commits says, by environment, which commit the code of the job is of.
	Commits  map[string]string `json:"commits,omitempty"`
	Runs     int               `json:"runs"`
	Compiles int               `json:"compiles"`
	Failed   int               `json:"failed"`
}

// KeepNode names a machine. Boot is the beginning of the machine's boot id, or of its ticket's digest. If Boot is
// empty, KeepNode means the next machine that uses the node's key. An operator leaves Boot empty if the agent was
// downgraded.
type KeepNode struct {
	Node tutti.NodeName `json:"node"`
	Boot string         `json:"boot,omitempty"`
}

// NodeView is a node in a list.
type NodeView struct {
	Node   tutti.NodeName    `json:"node"`
	Key    tutti.NodeKey     `json:"key"`
	Groups []tutti.GroupName `json:"groups"`
	// GroupsWhy says for each group why the node is in it.
	GroupsWhy map[tutti.GroupName]string `json:"groups_why,omitempty"`
	// Matches are the groups with `where` in which the node is, and those for which nobody knows whether it is in them. These
	// groups give nothing to the node, so they are not among Groups.
	Matches []tutti.Match `json:"where,omitempty"`
	// Environment is the environment that a group of the node names. Environment is empty if no group names one, or if it is
	// the fleet's environment.
	Environment string    `json:"environment,omitempty"`
	ENC         *ENCView  `json:"enc,omitempty"` // nil if the server has no ENC
	JoinedAt    time.Time `json:"joined_at"`
	SeenAt      time.Time `json:"seen_at,omitzero"`
	Connected   bool      `json:"connected"`
	Stopped     bool      `json:"stopped,omitempty"`
	Version     string    `json:"version,omitempty"`
	Puppet      string    `json:"puppet,omitempty"`
	// TooOldFor lists capabilities that the server may need and the node's agent does not have.
	TooOldFor []tutti.Capability `json:"too_old_for,omitempty"`
	// OldGrants lists types that this node may export by a grant from before 0.3.0. A node that exports one of these
	// types can become root on each node that collects the export. The next push of the fleet file needs `dangerous:
	// true` for these types (ADR 0022).
	OldGrants []string `json:"old_grants,omitempty"`
	// Conflicted says that two machines use the node's identity. Machines lists the machines that
	// have said hello since the server started, if there is more than one machine.
	Conflicted string          `json:"conflicted,omitempty"`
	Machines   []tutti.Machine `json:"machines,omitempty"`

	Trouble string `json:"trouble,omitempty"` // Trouble is the agent's own text about work that it cannot do.
	// Unnoted is the reason why the agent could not note foreign runs. Until the agent has noted these runs, the node
	// is not good.
	Unnoted string `json:"unnoted,omitempty"`
	Warm    int64  `json:"warm,omitempty"`   // bytes of memory of the process that has Puppet loaded
	Paused  string `json:"paused,omitempty"` // why no run begins on the node by itself
	// Stands is the node's state under the current code and data. The state of an observed node follows from what Puppet
	// has left on the node (ADR 0030), and says nothing about code and data.
	Stands NodeState `json:"stands,omitempty"`
	Why    string    `json:"why,omitempty"`  // the reason for Stands; empty for NodeGood, and in a list for callers who may only view
	Since  time.Time `json:"since,omitzero"` // when this state began, if that is known
	// Certificate is what the node's Puppet certificate said when the node joined. It is nil if the node joined with a
	// token.
	Certificate *tutti.NodeCertificate `json:"certificate,omitempty"`
	// Observed is true if Tutti starts nothing on the node (`mode: observe`).
	Observed bool `json:"observed,omitempty"`
	// Trusts is the counter of the last statement about code keys that the node has accepted.
	Trusts   uint64          `json:"trusts,omitempty"`
	Active   tutti.RunID     `json:"active,omitempty"`
	HeldBy   tutti.JobID     `json:"held_by,omitempty"` // the exclusive job that holds the node now
	LastRun  tutti.RunID     `json:"last_run,omitempty"`
	LastJob  tutti.JobID     `json:"last_job,omitempty"`
	Outcome  tutti.Outcome   `json:"outcome,omitempty"`
	Reason   tutti.Reason    `json:"reason,omitempty"`
	Proved   bool            `json:"proved,omitempty"`
	Foreign  bool            `json:"foreign,omitempty"` // Tutti did not start the last run
	Local    *tutti.Local    `json:"local,omitempty"`   // the agent's report, if the last run was a local run
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

// Pause names the target to pause, the reason, and the duration (0 means until it is unpaused).
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
	Until  time.Time `json:"until,omitzero"` // Until is zero if the pause has no end.
}

// CreateToken allows machines to join under names that fit the pattern.
type CreateToken struct {
	Name   string            `json:"name"`
	Groups []tutti.GroupName `json:"groups,omitempty"`
	TTL    time.Duration     `json:"ttl"`
	Uses   int               `json:"uses,omitempty"` // how many machines may join; 0 means 1
}

// CreatedToken contains the token's text. The server shows the text only once.
type CreatedToken struct {
	Token   tutti.TokenID `json:"token"`
	Text    string        `json:"text"`
	Expires time.Time     `json:"expires"`
}

// TokenView is a token in a list.
type TokenView struct {
	Token   tutti.TokenID     `json:"token"`
	Name    string            `json:"name"` // pattern of the allowed names
	Groups  []tutti.GroupName `json:"groups,omitempty"`
	Expires time.Time         `json:"expires"`
	Uses    int               `json:"uses,omitempty"` // how many machines may join in all
	Used    int               `json:"used,omitempty"` // how many machines have joined
}

// IssueOperator asks for a certificate for an operator. Request is a PKCS #10 request in PEM form.
// The server ignores the names in the request. CodeKey records that the operator also gets the
// code-signing key. No server has this key.
type IssueOperator struct {
	Operator string `json:"operator"`
	Request  []byte `json:"request"`
	CodeKey  bool   `json:"code_key,omitempty"`
	// Follows is true if the client can store several CAs. A client of an earlier release gets only the CA from
	// before a rotation.
	Follows bool `json:"follows,omitempty"`
}

// IssuedOperator is a certificate and everything else that an operator needs.
type IssuedOperator struct {
	Certificate []byte       `json:"certificate"` // PEM
	CA          []byte       `json:"ca"`          // one or several CAs in PEM
	Signer      tutti.Digest `json:"signer,omitempty"`
	Server      string       `json:"server"` // URL
	Serial      string       `json:"serial"` // hexadecimal
	Expires     time.Time    `json:"expires"`
}

// OperatorView is an operator in a list.
type OperatorView struct {
	Operator     string    `json:"operator"`
	Certificates int       `json:"certificates"`     // valid certificates that the server has issued
	Expires      time.Time `json:"expires,omitzero"` // the end of the certificate that is valid longest
	CodeKey      bool      `json:"code_key,omitempty"`
	Revoked      time.Time `json:"revoked,omitzero"`
	Reason       string    `json:"reason,omitempty"` // reason of the revocation
}

// RevokeOperator names an operator. The field Last allows the call to revoke the last operator with a
// certificate.
type RevokeOperator struct {
	Operator string `json:"operator"`
	Reason   string `json:"reason,omitempty"`
	Last     bool   `json:"last,omitempty"`
	// CancelJobs also cancels the operator's jobs that have begun. A server of an earlier release ignores
	// CancelJobs, see RevokedOperator.
	CancelJobs bool `json:"cancel_jobs,omitempty"`
}

// RevokedOperator says what happened to the operator's jobs. A server of an earlier release cancels no
// jobs, and both lists are nil.
type RevokedOperator struct {
	Cancelled []tutti.JobID `json:"cancelled"`
	GoOn      []tutti.JobID `json:"go_on"` // GoOn lists the unfinished jobs that the call did not cancel.
}

// EnrolRequest asks the server to admit Key under Name. The key signs the request. Package identity
// signs and verifies the request.
type EnrolRequest struct {
	Token     tutti.TokenID  `json:"token"`
	Secret    []byte         `json:"secret"`
	Name      tutti.NodeName `json:"name"`
	Key       tutti.NodeKey  `json:"key"`
	BoxKey    string         `json:"box_key"`
	Signature []byte         `json:"signature"`
}

// Enrolled contains everything that a node needs to connect to the bus. CodeKey is the operators'
// public key. The node trusts this key from now on.
type Enrolled struct {
	Node    tutti.NodeName `json:"node"`
	JWT     string         `json:"jwt"`
	CA      string         `json:"ca"`  // one or several CAs in PEM
	Bus     string         `json:"bus"` // host:port
	CodeKey string         `json:"code_key"`
	Time    time.Time      `json:"time"`          // the time of the server
	Was     []tutti.Digest `json:"was,omitempty"` // the earlier CAs of this fleet
	// Fleet is the id of the fleet. Fleet is empty if the server is of release 0.2.0 or older.
	Fleet tutti.Digest `json:"fleet,omitempty"`
	// Trust is the last statement about code keys. If Trust is nil, there is no statement yet, and CodeKey is the first
	// key.
	Trust *tutti.Statement `json:"trust,omitempty"`
	// Operators is the list of operators who sign actions. Operators is nil if there is no list.
	Operators *tutti.Statement `json:"operators,omitempty"`
}

// FleetSource is the text of a fleet file, with the file name for error messages.
type FleetSource struct {
	File   string `json:"file"`
	Source []byte `json:"source"`
	// Statement is of kind StatementPlans. Statement is nil if the fleet file is not signed.
	Statement *tutti.Statement `json:"statement,omitempty"`
}
