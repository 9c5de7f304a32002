package httpapi

import (
	"context"

	"github.com/tutti-project/tutti/api"
)

// joins has the calls of a Client about machines that join with their Puppet certificate.
type joins struct{ c *Client }

// EnrolByCertificate implements tutti.Nodes. The connection must be the one to which in.Binding belongs.
func (j joins) EnrolByCertificate(ctx context.Context, in api.JoinRequest) (api.JoinAnswer, error) {
	return ask[api.JoinAnswer](ctx, j.c, callJoin, in)
}

// ListPending implements tutti.Nodes.
func (j joins) ListPending(ctx context.Context) ([]api.PendingView, error) {
	return ask[[]api.PendingView](ctx, j.c, callPending, nothing{})
}

// ApproveNode implements tutti.Nodes.
func (j joins) ApproveNode(ctx context.Context, in api.ApproveNode) error {
	return tell(ctx, j.c, callApproveNode, in)
}

// RejectNode implements tutti.Nodes.
func (j joins) RejectNode(ctx context.Context, in api.RejectNode) error {
	return tell(ctx, j.c, callRejectNode, in)
}

// SetJoinCA implements tutti.Tokens.
func (j joins) SetJoinCA(ctx context.Context, in api.SetJoinCA) (api.JoinCAView, error) {
	return ask[api.JoinCAView](ctx, j.c, callSetJoinCA, in)
}

// ShowJoinCA implements tutti.Tokens.
func (j joins) ShowJoinCA(ctx context.Context) (api.JoinCAView, error) {
	return ask[api.JoinCAView](ctx, j.c, callShowJoinCA, nothing{})
}
