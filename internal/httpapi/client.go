package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Client sends requests to a server. Client implements all interfaces of Services.
type Client struct {
	joins
	histories
	inventories
	overviews
	pictures
	forwards
	base string
	http *http.Client
	// Witness stores the highest position of the server in all answers. If Witness is nil, no position is stored.
	// Do not change Witness after the first use of the client.
	Witness Witness
	// Trust is called for each answer, before the client returns the answer. Trust gets the set of keys that the
	// operator should use. If Trust is nil, the client does not report keys. Do not change Trust after the first use
	// of the client.
	Trust func(ctx context.Context, should Trust)
}

var (
	_ api.Jobs   = (*Client)(nil)
	_ api.Nodes  = (*Client)(nil)
	_ api.Tokens = (*Client)(nil)
	_ api.Codes  = (*Client)(nil)
	_ api.Values = (*Client)(nil)
	_ api.Pauses = (*Client)(nil)

	_ api.Secrets   = (*Client)(nil)
	_ api.Signings  = (*Client)(nil)
	_ api.Operators = (*Client)(nil)
	_ api.Audits    = (*Client)(nil)
	_ api.Explains  = (*Client)(nil)
	_ api.Remotes   = (*Client)(nil)
	_ api.Reports   = (*Client)(nil)
	_ api.Rotations = (*Client)(nil)
)

// NewClient returns a client for the server at base, which has the form `https://host:port`. The HTTP client must
// have the operator's certificate.
func NewClient(base string, client *http.Client) *Client {
	own := *client
	own.CheckRedirect = noRedirect
	c := &Client{base: base, http: &own}
	c.joins, c.histories, c.inventories, c.overviews = joins{c}, histories{c}, inventories{c}, overviews{c}
	c.pictures, c.forwards = pictures{c}, forwards{c}
	return c
}

// noRedirect refuses redirects. A Tutti server never sends a redirect. If the client followed redirects, it would
// send the body, with values and tokens, to any address in the answer, even without TLS.
func noRedirect(r *http.Request, _ []*http.Request) error {
	return tutti.Errorf(tutti.CodeRefused, "the server redirects the request to %q, but a Tutti server never redirects: the answer comes from another program, for example a proxy", r.URL.Redacted())
}

// The method `post` sends a body and returns the response. The caller must close the response's
// body.
func (c *Client) post(ctx context.Context, name string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/"+name, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType(name))
	if c.Witness != nil {
		setPosition(req.Header, headerSeen, c.Witness.Seen())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreached(ctx, err)
	}
	if at, err := positionIn(resp.Header, headerPosition); c.Witness != nil && err == nil && at.Epoch.Number > 0 {
		c.Witness.See(at)
	}
	if should, ok := trustIn(resp.Header); ok && c.Trust != nil && should.provedBy(resp.TLS) {
		c.Trust(ctx, should)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e errorBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e); err != nil || e.Code == "" {
		return nil, tutti.Errorf(tutti.CodeInternal, "the server at %s answered %s to %s", c.base, resp.Status, name)
	}
	return nil, e.err()
}

// unreached adds a code to the error of a request that got no answer.
func (c *Client) unreached(ctx context.Context, err error) error {
	if tutti.CodeOf(context.Cause(ctx)) == tutti.CodeDeadline {
		return context.Cause(ctx)
	}
	if tutti.CodeOf(err) != tutti.CodeInternal {
		return err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return tutti.Wrap(tutti.CodeRefused, err, "the server at %s is not the server that this operator knows", c.base)
	}
	// Package tls uses this name for an alert that the other side sent.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return tutti.Wrap(tutti.CodeUnauthenticated, err, "the server at %s does not know this operator's certificate", c.base)
	}
	return tutti.Wrap(tutti.CodeUnavailable, err, "the server at %s cannot be reached", c.base)
}

// These constants are how long the client waits for an answer.
const (
	callDeadline = time.Minute
	blobDeadline = 5 * time.Minute
)

func ask[Out any](ctx context.Context, c *Client, name string, in any) (Out, error) {
	var out Out
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	return send[Out](ctx, c, name, body, callDeadline)
}

func send[Out any](ctx context.Context, c *Client, name string, body []byte, deadline time.Duration) (Out, error) {
	var out Out
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, tutti.Errorf(tutti.CodeDeadline, "the server at %s did not answer %s within %s", c.base, name, deadline))
	defer cancel()
	resp, err := c.post(ctx, name, body)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&out)
	return out, tutti.Wrap(tutti.CodeUnavailable, err, "the answer to %s broke off", name)
}

func tell(ctx context.Context, c *Client, name string, in any) error {
	_, err := ask[nothing](ctx, c, name, in)
	return err
}

// StartJob implements tutti.Jobs.
func (c *Client) StartJob(ctx context.Context, in api.StartJob) (tutti.JobID, error) {
	return ask[tutti.JobID](ctx, c, callStartJob, in)
}

// CancelJob implements tutti.Jobs.
func (c *Client) CancelJob(ctx context.Context, in api.CancelJob) error {
	return tell(ctx, c, callCancelJob, in)
}

// ListJobs implements tutti.Jobs.
func (c *Client) ListJobs(ctx context.Context) ([]api.JobView, error) {
	return ask[[]api.JobView](ctx, c, callListJobs, nothing{})
}

// RunRecord implements tutti.Jobs.
func (c *Client) RunRecord(ctx context.Context, run tutti.RunID) (tutti.Record, error) {
	return ask[tutti.Record](ctx, c, callRunRecord, run)
}

// WatchJob implements tutti.Jobs. WatchJob returns CodeUnavailable if the connection ends before the server has sent
// the last line.
func (c *Client) WatchJob(ctx context.Context, in api.WatchJob, yield func(api.Watched) error) error {
	return follow(ctx, c, callWatchJob, in, yield, "while watching; the job goes on: tutti job watch "+string(in.Job))
}

// ReadAudit implements tutti.Audits. ReadAudit returns CodeUnavailable if the connection ends before
// the server has sent the last line.
func (c *Client) ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error {
	return follow(ctx, c, callAudit, in, yield, "in the middle of the audit trail; run the command again")
}

// AskNodes implements tutti.Remotes. AskNodes returns CodeUnavailable if the stream of answers breaks off. Even
// then, nodes may have done the action.
func (c *Client) AskNodes(ctx context.Context, in api.NodesQuestion, yield func([]api.NodeAnswer) error) error {
	return follow(ctx, c, callAskNodes, in, yield, "before all nodes had answered; the nodes may have done the action nevertheless")
}

// The function `follow` reads a stream. The argument `broken` is part of the error for a stream that ends too
// early.
func follow[Item any](ctx context.Context, c *Client, name string, in any, yield func(Item) error, broken string) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := c.post(ctx, name, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxBody)
	for lines.Scan() {
		var line streamLine[Item]
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return tutti.Wrap(tutti.CodeUnavailable, err, "%s", name)
		}
		switch {
		case line.End:
			return nil
		case line.Error != nil:
			return line.Error.err()
		case line.Item == nil:
			continue
		}
		if err := yield(*line.Item); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return tutti.Errorf(tutti.CodeUnavailable, "the connection to the server ended %s", broken)
}

// CreateToken implements tutti.Tokens.
func (c *Client) CreateToken(ctx context.Context, in api.CreateToken) (api.CreatedToken, error) {
	return ask[api.CreatedToken](ctx, c, callCreateToken, in)
}

// ListTokens implements tutti.Tokens.
func (c *Client) ListTokens(ctx context.Context) ([]api.TokenView, error) {
	return ask[[]api.TokenView](ctx, c, callListTokens, nothing{})
}

// RevokeToken implements tutti.Tokens.
func (c *Client) RevokeToken(ctx context.Context, token tutti.TokenID) error {
	return tell(ctx, c, callRevokeToken, token)
}

// IssueOperator implements tutti.Operators.
func (c *Client) IssueOperator(ctx context.Context, in api.IssueOperator) (api.IssuedOperator, error) {
	return ask[api.IssuedOperator](ctx, c, callIssue, in)
}

// RenewOperator implements tutti.Operators.
func (c *Client) RenewOperator(ctx context.Context, request []byte) (api.IssuedOperator, error) {
	return ask[api.IssuedOperator](ctx, c, callRenew, request)
}

// ListOperators implements tutti.Operators.
func (c *Client) ListOperators(ctx context.Context) ([]api.OperatorView, error) {
	return ask[[]api.OperatorView](ctx, c, callOperators, nothing{})
}

// RotateCA implements tutti.Rotations.
func (c *Client) RotateCA(ctx context.Context, in api.RotateCA) (api.CARotation, error) {
	return ask[api.CARotation](ctx, c, callRotateCA, in)
}

// ShowCARotation implements tutti.Rotations.
func (c *Client) ShowCARotation(ctx context.Context) (api.CARotation, error) {
	return ask[api.CARotation](ctx, c, callShowRotation, nothing{})
}

// FollowRotation implements tutti.Rotations.
func (c *Client) FollowRotation(ctx context.Context, request []byte) (api.IssuedOperator, error) {
	return ask[api.IssuedOperator](ctx, c, callFollow, request)
}

// RevokeOperator implements tutti.Operators.
func (c *Client) RevokeOperator(ctx context.Context, in api.RevokeOperator) (api.RevokedOperator, error) {
	return ask[api.RevokedOperator](ctx, c, callRevoke, in)
}

// ExplainAccess implements tutti.Operators.
func (c *Client) ExplainAccess(ctx context.Context, in api.AccessQuery) (api.AccessAnswer, error) {
	return ask[api.AccessAnswer](ctx, c, callAccess, in)
}

// Enrol implements tutti.Nodes.
func (c *Client) Enrol(ctx context.Context, in api.EnrolRequest) (api.Enrolled, error) {
	return ask[api.Enrolled](ctx, c, callEnrol, in)
}

// ListNodes implements tutti.Nodes.
func (c *Client) ListNodes(ctx context.Context) ([]api.NodeView, error) {
	return ask[[]api.NodeView](ctx, c, callListNodes, nothing{})
}

// ReplaceNode implements tutti.Nodes.
func (c *Client) ReplaceNode(ctx context.Context, node tutti.NodeName) error {
	return tell(ctx, c, callReplaceNode, node)
}

// KeepNode implements tutti.Nodes.
func (c *Client) KeepNode(ctx context.Context, in api.KeepNode) error {
	return tell(ctx, c, callKeepNode, in)
}

// RemoveNode implements tutti.Nodes.
func (c *Client) RemoveNode(ctx context.Context, node tutti.NodeName) error {
	return tell(ctx, c, callRemoveNode, node)
}

// MissingBlobs implements tutti.Codes.
func (c *Client) MissingBlobs(ctx context.Context, digests []tutti.Digest) ([]tutti.Digest, error) {
	return ask[[]tutti.Digest](ctx, c, callMissingBlobs, digests)
}

// PutBlob implements tutti.Codes.
func (c *Client) PutBlob(ctx context.Context, content []byte) (tutti.Digest, error) {
	return send[tutti.Digest](ctx, c, callPutBlob, content, blobDeadline)
}

// PushCode implements tutti.Codes.
func (c *Client) PushCode(ctx context.Context, in tutti.CodePush) (tutti.CodePushed, error) {
	return ask[tutti.CodePushed](ctx, c, callPushCode, in)
}

// ShowCode implements tutti.Codes.
func (c *Client) ShowCode(ctx context.Context, in api.CodeQuery) (api.CodeShown, error) {
	return ask[api.CodeShown](ctx, c, callShowCode, in)
}

// ReadCode implements tutti.Codes.
func (c *Client) ReadCode(ctx context.Context, in api.CodeQuery) (api.CodeRead, error) {
	return ask[api.CodeRead](ctx, c, callReadCode, in)
}

// SuggestGrants implements tutti.Codes.
func (c *Client) SuggestGrants(ctx context.Context, job tutti.JobID) (api.SuggestedGrants, error) {
	return ask[api.SuggestedGrants](ctx, c, callSuggest, job)
}

// SetFleet implements tutti.Codes.
func (c *Client) SetFleet(ctx context.Context, in api.FleetSource) (tutti.Fleet, error) {
	return ask[tutti.Fleet](ctx, c, callSetFleet, in)
}

// GetFleet implements tutti.Codes.
func (c *Client) GetFleet(ctx context.Context) (tutti.Fleet, error) {
	return ask[tutti.Fleet](ctx, c, callGetFleet, nothing{})
}

// PushEffect implements tutti.Codes.
func (c *Client) PushEffect(ctx context.Context, in api.PushQuery) (api.PushEffect, error) {
	return ask[api.PushEffect](ctx, c, callPushEffect, in)
}

// ReleaseCode implements tutti.Codes.
func (c *Client) ReleaseCode(ctx context.Context, environment string) (tutti.CodeReleased, error) {
	return ask[tutti.CodeReleased](ctx, c, callReleaseCode, environment)
}

// SetValue implements tutti.Values.
func (c *Client) SetValue(ctx context.Context, key string, value json.RawMessage) error {
	return tell(ctx, c, callSetValue, setValue{Key: key, Value: value})
}

// UnsetValue implements tutti.Values.
func (c *Client) UnsetValue(ctx context.Context, key string) error {
	return tell(ctx, c, callUnsetValue, key)
}

// ListValues implements tutti.Values, page by page.
func (c *Client) ListValues(ctx context.Context, prefix string) ([]api.ValueView, error) {
	all := []api.ValueView{}
	for in := (api.ValuesQuery{Prefix: prefix}); ; in.After = all[len(all)-1].Key {
		page, err := c.PageValues(ctx, in)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Values...); !page.More || len(page.Values) == 0 {
			return all, nil
		}
	}
}

// PageValues implements tutti.Values.
func (c *Client) PageValues(ctx context.Context, in api.ValuesQuery) (api.ValuesPage, error) {
	return ask[api.ValuesPage](ctx, c, callPageValues, in)
}

// Effect implements tutti.Values.
func (c *Client) Effect(ctx context.Context, key string, value json.RawMessage) (api.Effect, error) {
	return ask[api.Effect](ctx, c, callEffect, effectOf{Key: key, Value: value})
}

// Pause implements tutti.Pauses.
func (c *Client) Pause(ctx context.Context, in api.Pause) (api.PauseView, error) {
	return ask[api.PauseView](ctx, c, callPause, in)
}

// Unpause implements tutti.Pauses.
func (c *Client) Unpause(ctx context.Context, target string) error {
	return tell(ctx, c, callUnpause, target)
}

// ListPauses implements tutti.Pauses.
func (c *Client) ListPauses(ctx context.Context) ([]api.PauseView, error) {
	return ask[[]api.PauseView](ctx, c, callListPauses, nothing{})
}

// ShowNode implements tutti.Explains.
func (c *Client) ShowNode(ctx context.Context, node tutti.NodeName) (api.NodeDetail, error) {
	return ask[api.NodeDetail](ctx, c, callShowNode, node)
}

// ExplainNode implements tutti.Explains.
func (c *Client) ExplainNode(ctx context.Context, node tutti.NodeName) (api.NodeExplanation, error) {
	return ask[api.NodeExplanation](ctx, c, callExplainNode, node)
}

// ExplainValue implements tutti.Explains.
func (c *Client) ExplainValue(ctx context.Context, key string) (api.ValueExplanation, error) {
	return ask[api.ValueExplanation](ctx, c, callExplainValue, key)
}

// ExplainResource implements tutti.Explains.
func (c *Client) ExplainResource(ctx context.Context, in api.ExplainResource) (api.ResourceExplanation, error) {
	return ask[api.ResourceExplanation](ctx, c, callExplainRes, in)
}

// Graph implements tutti.Explains.
func (c *Client) Graph(ctx context.Context, target string) (api.Graph, error) {
	return ask[api.Graph](ctx, c, callGraph, target)
}

// RunReport implements tutti.Reports.
func (c *Client) RunReport(ctx context.Context, run string) (api.RunReport, error) {
	return ask[api.RunReport](ctx, c, callRunReport, run)
}

// RunLog implements tutti.Reports. RunLog returns CodeUnavailable if the connection ends before the
// server has sent the last line.
func (c *Client) RunLog(ctx context.Context, run tutti.RunID, yield func(api.LogLine) error) error {
	return follow(ctx, c, callRunLog, run, yield, "in the middle of the log; run the command again")
}

// JobChanges implements tutti.Reports.
func (c *Client) JobChanges(ctx context.Context, job tutti.JobID) (api.JobChanges, error) {
	return ask[api.JobChanges](ctx, c, callJobChanges, job)
}
