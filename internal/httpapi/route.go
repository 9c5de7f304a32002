package httpapi

import (
	"context"

	"github.com/tutti-project/tutti"
)

// Services are what the handler serves.
type Services struct {
	Jobs      tutti.Jobs
	Nodes     tutti.Nodes
	Tokens    tutti.Tokens
	Operators tutti.Operators
	Codes     tutti.Codes
	Values    tutti.Values
	Pauses    tutti.Pauses
	Audits    tutti.Audits
	Explains  tutti.Explains
	Remotes   tutti.Remotes
	Reports   tutti.Reports
}

// setValue and the other small inputs exist on the wire only.
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

// The names of the calls.
const (
	callStartJob     = "jobs/start"
	callCancelJob    = "jobs/cancel"
	callListJobs     = "jobs/list"
	callRunRecord    = "runs/record"
	callCreateToken  = "tokens/create"
	callListTokens   = "tokens/list"
	callRevokeToken  = "tokens/revoke"
	callIssue        = "operators/issue"
	callRenew        = "operators/renew"
	callOperators    = "operators/list"
	callRevoke       = "operators/revoke"
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
	callSuggest      = "grants/suggest"
	callSetFleet     = "fleet/set"
	callGetFleet     = "fleet/get"
	callSetValue     = "data/set"
	callUnsetValue   = "data/unset"
	callListValues   = "data/list"
	callEffect       = "data/effect"
	callPause        = "pauses/set"
	callUnpause      = "pauses/end"
	callListPauses   = "pauses/list"
	callShowNode     = "nodes/show"
	callExplainNode  = "explain/node"
	callExplainValue = "explain/value"
	callExplainRes   = "explain/resource"
	callGraph        = "graph"
	callRunReport    = "runs/report"
	callJobChanges   = "jobs/changes"

	// These are not JSON in, JSON out, or need no certificate.
	callPutBlob  = "blobs/put"
	callWatchJob = "jobs/watch"
	callAudit    = "audit/read"
	callAskNodes = "remote/ask"
	callRunLog   = "runs/log"
	callEnrol    = "enrol"
)

// routes is the table of the calls that need an operator.
func (s Services) routes() map[string]call {
	return map[string]call{
		callStartJob:     answer(s.Jobs.StartJob),
		callCancelJob:    do(s.Jobs.CancelJob),
		callListJobs:     list(s.Jobs.ListJobs),
		callRunRecord:    answer(s.Jobs.RunRecord),
		callCreateToken:  answer(s.Tokens.CreateToken),
		callListTokens:   list(s.Tokens.ListTokens),
		callRevokeToken:  do(s.Tokens.RevokeToken),
		callIssue:        answer(s.Operators.IssueOperator),
		callRenew:        answer(s.Operators.RenewOperator),
		callOperators:    list(s.Operators.ListOperators),
		callRevoke:       do(s.Operators.RevokeOperator),
		callListNodes:    list(s.Nodes.ListNodes),
		callReplaceNode:  do(s.Nodes.ReplaceNode),
		callKeepNode:     do(s.Nodes.KeepNode),
		callRemoveNode:   do(s.Nodes.RemoveNode),
		callMissingBlobs: answer(s.Codes.MissingBlobs),
		callPushCode:     answer(s.Codes.PushCode),
		callPushEffect:   answer(s.Codes.PushEffect),
		callReleaseCode:  answer(s.Codes.ReleaseCode),
		callShowCode:     answer(s.Codes.ShowCode),
		callReadCode:     answer(s.Codes.ReadCode),
		callSuggest:      answer(s.Codes.SuggestGrants),
		callSetFleet:     answer(s.Codes.SetFleet),
		callGetFleet:     list(s.Codes.GetFleet),
		callSetValue: do(func(ctx context.Context, in setValue) error {
			return s.Values.SetValue(ctx, in.Key, []byte(in.Value))
		}),
		callUnsetValue: do(s.Values.UnsetValue),
		callListValues: answer(s.Values.ListValues),
		callEffect: answer(func(ctx context.Context, in effectOf) (tutti.Effect, error) {
			return s.Values.Effect(ctx, in.Key, []byte(in.Value))
		}),
		callPause:      answer(s.Pauses.Pause),
		callUnpause:    do(s.Pauses.Unpause),
		callListPauses: list(s.Pauses.ListPauses),

		callShowNode:     answer(s.Explains.ShowNode),
		callExplainNode:  answer(s.Explains.ExplainNode),
		callExplainValue: answer(s.Explains.ExplainValue),
		callExplainRes:   answer(s.Explains.ExplainResource),
		callGraph:        answer(s.Explains.Graph),

		callRunReport:  answer(s.Reports.RunReport),
		callJobChanges: answer(s.Reports.JobChanges),
	}
}
