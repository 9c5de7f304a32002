package httpapi

import (
	"context"
	"net/http"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Services are the interfaces that the handler serves.
type Services struct {
	Jobs      api.Jobs
	Nodes     api.Nodes
	Tokens    api.Tokens
	Operators api.Operators
	Codes     api.Codes
	Signings  api.Signings
	Values    api.Values
	Pauses    api.Pauses
	Audits    api.Audits
	Explains  api.Explains
	Remotes   api.Remotes
	Reports   api.Reports
	Secrets   api.Secrets
	Rotations api.Rotations
	// Metrics answers the scrapes of Prometheus. It may be nil.
	Metrics http.Handler
}

// These types are the small inputs that exist only in requests.
type (
	setValue struct {
		Key   string   `json:"key"`
		Value jsonText `json:"value"`
	}
	effectOf struct {
		Key   string   `json:"key"`
		Value jsonText `json:"value,omitempty"`
	}
	nothing struct{}
)

// These are the names of the calls.
const (
	callStartJob     = "jobs/start"
	callCancelJob    = "jobs/cancel"
	callListJobs     = "jobs/list"
	callRunRecord    = "runs/record"
	callCreateToken  = "tokens/create"
	callListTokens   = "tokens/list"
	callRevokeToken  = "tokens/revoke"
	callSetJoinCA    = "join/ca"
	callShowJoinCA   = "join/show"
	callPending      = "nodes/pending"
	callApproveNode  = "nodes/approve"
	callRejectNode   = "nodes/reject"
	callIssue        = "operators/issue"
	callRenew        = "operators/renew"
	callOperators    = "operators/list"
	callRevoke       = "operators/revoke"
	callAccess       = "access/explain"
	callListNodes    = "nodes/list"
	callReplaceNode  = "nodes/replace"
	callKeepNode     = "nodes/keep"
	callRemoveNode   = "nodes/remove"
	callMissingBlobs = "blobs/missing"
	callPushCode     = "code/push"
	callPushEffect   = "code/effect"
	callReleaseCode  = "code/release"
	callShowCode     = "code/show"
	callReadCode     = "code/read"
	callListCode     = "code/list"
	callGetCode      = "code/get"
	callRetireCode   = "code/retire"
	callSigning      = "signing/show"
	callSignCode     = "signing/code"
	callTrustKeys    = "signing/trust"
	callTrustOps     = "signing/operators"
	callSuggest      = "grants/suggest"
	callSetFleet     = "fleet/set"
	callGetFleet     = "fleet/get"
	callSetValue     = "data/set"
	callUnsetValue   = "data/unset"
	callListValues   = "data/list" // for clients of release 0.2.0, with all values in one answer
	callPageValues   = "data/page"
	callEffect       = "data/effect"
	callRecipients   = "secrets/recipients"
	callSealSecret   = "secrets/seal"
	callListSecrets  = "secrets/list"
	callRecover      = "secrets/recover"
	callSecretEffect = "secrets/effect"
	callPause        = "pauses/set"
	callUnpause      = "pauses/end"
	callListPauses   = "pauses/list"
	callShowNode     = "nodes/show"
	callExplainNode  = "explain/node"
	callExplainValue = "explain/value"
	callExplainRes   = "explain/resource"
	callGraph        = "graph"
	callCauses       = "nodes/causes"
	callPicture      = "graph/picture"
	callRunReport    = "runs/report"
	callJobChanges   = "jobs/changes"
	callRotateCA     = "ca/rotate"
	callShowRotation = "ca/rotation"
	callFollow       = "operators/follow"

	// These calls do not have JSON as input and output, or they need no certificate (callEnrol and callJoin).
	callPutBlob    = "blobs/put"
	callWatchJob   = "jobs/watch"
	callWatchFleet = "fleet/watch"
	callAudit      = "audit/read"
	callAskNodes   = "remote/ask"
	callRunLog     = "runs/log"
	callQuery      = "inventory/query"
	callEnrol      = "enrol"
	callJoin       = "join"
)

// The type `route` describes a call for operators. It contains the function that handles the call, and the
// verbs. The caller needs one of the verbs. For some calls, the permission also depends on the request's
// content, which the server checks.
type route struct {
	at      string // method and path; empty for POST /v1/NAME
	verbs   []tutti.Verb
	limit   int64 // bytes of the body
	streams bool  // the answer is a stream, which may be endless
	serve   func(w http.ResponseWriter, r *http.Request, body []byte)
}

// The function `takes` returns a route for a call with JSON as input and output.
func takes(verbs []tutti.Verb, c call) route {
	return route{verbs: verbs, limit: smallBody, serve: func(w http.ResponseWriter, r *http.Request, body []byte) {
		out, err := c(r.Context(), body)
		write(w, out, err)
	}}
}

// takesMuch does the same as `takes`, but for a call with a large input, such as code, a fleet file, a value, or
// a list of nodes.
func takesMuch(verbs []tutti.Verb, c call) route {
	rt := takes(verbs, c)
	rt.limit = maxBody
	return rt
}

// These are the verbs of the routes. An operator needs only one of the verbs.
var (
	anybody     = []tutti.Verb{} // anybody with a certificate
	views       = []tutti.Verb{tutti.VerbView}
	reads       = []tutti.Verb{tutti.VerbRead}
	runs        = []tutti.Verb{tutti.VerbRun}
	approves    = []tutti.Verb{tutti.VerbApprove}
	codes       = []tutti.Verb{tutti.VerbCode}
	changesData = []tutti.Verb{tutti.VerbData}
	asksPuppet  = []tutti.Verb{tutti.VerbPuppet, tutti.VerbRun} // VerbRun only for actions about compiles
	letsNodesIn = []tutti.Verb{tutti.VerbNodes}
	administers = []tutti.Verb{tutti.VerbAdmin}
	scrapes     = []tutti.Verb{tutti.VerbMetrics}
	readsCode   = []tutti.Verb{tutti.VerbRead, tutti.VerbCode}
	readsData   = []tutti.Verb{tutti.VerbRead, tutti.VerbData}
)

// The method `routes` returns the table of the calls that need an operator, with the verbs for each
// call.
func (s Services) routes() map[string]route {
	return map[string]route{
		callStartJob:     takesMuch(runs, answer(s.Jobs.StartJob)),
		callCancelJob:    takes(runs, do(s.Jobs.CancelJob)),
		callListJobs:     takes(views, list(s.Jobs.ListJobs)),
		callRunRecord:    takes(reads, answer(s.Jobs.RunRecord)),
		callCreateToken:  takes(letsNodesIn, answer(s.Tokens.CreateToken)),
		callListTokens:   takes(letsNodesIn, list(s.Tokens.ListTokens)),
		callRevokeToken:  takes(letsNodesIn, do(s.Tokens.RevokeToken)),
		callSetJoinCA:    takesMuch(administers, answer(s.Tokens.SetJoinCA)),
		callShowJoinCA:   takes(letsNodesIn, list(s.Tokens.ShowJoinCA)),
		callPending:      takes(letsNodesIn, list(s.Nodes.ListPending)),
		callApproveNode:  takes(letsNodesIn, do(s.Nodes.ApproveNode)),
		callRejectNode:   takes(letsNodesIn, do(s.Nodes.RejectNode)),
		callIssue:        takes(administers, answer(s.Operators.IssueOperator)),
		callRenew:        takes(anybody, answer(s.Operators.RenewOperator)),
		callOperators:    takes(views, list(s.Operators.ListOperators)),
		callRevoke:       takes(administers, answer(s.Operators.RevokeOperator)),
		callAccess:       takes(views, answer(s.Operators.ExplainAccess)),
		callListNodes:    takes(views, list(s.Nodes.ListNodes)),
		callReplaceNode:  takes(letsNodesIn, do(s.Nodes.ReplaceNode)),
		callKeepNode:     takes(letsNodesIn, do(s.Nodes.KeepNode)),
		callRemoveNode:   takes(letsNodesIn, do(s.Nodes.RemoveNode)),
		callMissingBlobs: takesMuch(codes, answer(s.Codes.MissingBlobs)),
		callPushCode:     takesMuch(codes, answer(s.Codes.PushCode)),
		callPushEffect:   takesMuch(readsCode, answer(s.Codes.PushEffect)),
		callReleaseCode:  takes(approves, answer(s.Codes.ReleaseCode)),
		callShowCode:     takes(readsCode, answer(s.Codes.ShowCode)),
		callReadCode:     takes(readsCode, answer(s.Codes.ReadCode)),
		callListCode:     takes(readsCode, answer(s.Codes.ListCode)),
		callGetCode:      takes(readsCode, answer(s.Codes.GetCode)),
		callRetireCode:   takes(codes, answer(s.Codes.RetireCode)),
		callSigning:      takes(views, list(s.Signings.Signing)),
		callSignCode:     takesMuch(codes, do(s.Signings.SignCode)),
		callTrustKeys:    takesMuch(codes, do(s.Signings.TrustKeys)),
		callTrustOps:     takesMuch(codes, do(s.Signings.TrustOperators)),
		callSuggest:      takes(reads, answer(s.Codes.SuggestGrants)),
		callSetFleet:     takesMuch(codes, answer(s.Codes.SetFleet)),
		callGetFleet:     takes(readsCode, list(s.Codes.GetFleet)),
		callSetValue: takesMuch(changesData, do(func(ctx context.Context, in setValue) error {
			return s.Values.SetValue(ctx, in.Key, []byte(in.Value))
		})),
		callUnsetValue: takes(changesData, do(s.Values.UnsetValue)),
		callListValues: takes(readsData, answer(s.Values.ListValues)),
		callPageValues: takes(readsData, answer(s.Values.PageValues)),
		callEffect: takesMuch(readsData, answer(func(ctx context.Context, in effectOf) (api.Effect, error) {
			return s.Values.Effect(ctx, in.Key, []byte(in.Value))
		})),
		callRecipients:   takesMuch(changesData, answer(s.Secrets.Recipients)),
		callSealSecret:   takesMuch(changesData, do(s.Secrets.SealSecret)),
		callListSecrets:  takes(readsData, list(s.Secrets.ListSecrets)),
		callRecover:      takesMuch(changesData, answer(s.Secrets.RecoverSecret)),
		callSecretEffect: takesMuch(changesData, answer(s.Secrets.SecretEffect)),

		callPause:      takes(runs, answer(s.Pauses.Pause)),
		callUnpause:    takes(runs, do(s.Pauses.Unpause)),
		callListPauses: takes(views, list(s.Pauses.ListPauses)),

		callShowNode:     takes(reads, answer(s.Explains.ShowNode)),
		callExplainNode:  takes(reads, answer(s.Explains.ExplainNode)),
		callExplainValue: takes(reads, answer(s.Explains.ExplainValue)),
		callExplainRes:   takes(reads, answer(s.Explains.ExplainResource)),
		callGraph:        takes(views, answer(s.Explains.Graph)),
		callCauses:       takes(views, list(s.Explains.NodeCauses)),
		callPicture:      takes(views, answer(s.Explains.Picture)),

		callRunReport:  takes(reads, answer(s.Reports.RunReport)),
		callJobChanges: takes(reads, answer(s.Reports.JobChanges)),

		callRotateCA:     takesMuch(administers, answer(s.Rotations.RotateCA)),
		callShowRotation: takes(views, list(s.Rotations.ShowCARotation)),
		callFollow:       takes(anybody, answer(s.Rotations.FollowRotation)),

		callWatchJob:   {"", reads, smallBody, true, stream(s.Jobs.WatchJob)},
		callWatchFleet: {"", views, smallBody, true, stream(s.Explains.WatchFleet)},
		callAudit:      {"", reads, smallBody, true, stream(s.Audits.ReadAudit)},
		callAskNodes:   {"", asksPuppet, maxBody, true, stream(s.Remotes.AskNodes)},
		callRunLog:     {"", reads, smallBody, true, stream(s.Reports.RunLog)},
		callQuery:      {"", reads, smallBody, true, stream(s.Reports.Query)},
		callPutBlob: {"", codes, maxBlob, false, func(w http.ResponseWriter, r *http.Request, body []byte) {
			out, err := s.Codes.PutBlob(r.Context(), body)
			write(w, out, err)
		}},
		callMetrics: {"GET " + pathMetrics, scrapes, smallBody, false, s.scrape},
	}
}
