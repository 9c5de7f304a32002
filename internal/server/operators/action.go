package operators

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/server/core"
)

// signedActions returns the statement that an operator has signed for each node. If the fleet has operators who
// sign actions, nodes refuse unsigned actions. So the server then refuses an unsigned call and asks no node. The
// nodes check the signatures.
func (s *Operators) signedActions(ctx context.Context, in api.NodesQuestion) (map[tutti.NodeName]*tutti.Statement, error) {
	if !in.Action.Effect() {
		return nil, nil
	}
	out := map[tutti.NodeName]*tutti.Statement{}
	for _, st := range in.Signed {
		said, err := core.Decode[tutti.SignedAction]("signed action", st.Body)
		if err == nil {
			err = said.Validate()
		}
		if err != nil {
			return nil, err
		}
		if err := fits(ctx, said, in); err != nil {
			s.Denied(ctx, tutti.Actor(ctx), string(in.Action)+" Puppet", err)
			return nil, err
		}
		for _, n := range said.Nodes {
			out[n] = &st
		}
	}
	return out, s.Look(ctx, func(v explain.View) error {
		if v.Registry.Acting == nil || len(in.Signed) > 0 {
			return nil
		}
		return tutti.Errorf(tutti.CodeRefused, "%s: operators sign what nodes are to change in this fleet, and this request is not signed; ask with an operator's directory that has an action.key, and a tutti of this release", in.Action)
	})
}

// The function `fits` refuses a signed action that differs from the request. Without this check the audit trail
// would record the request, but nodes would do the signed action. Root on the server has no operator's name, and
// signs with the directory of some operator.
func fits(ctx context.Context, said tutti.SignedAction, in api.NodesQuestion) error {
	v := core.VisitOf(ctx)
	switch {
	case said.Action != in.Action:
		return tutti.Errorf(tutti.CodeRefused, "%s has signed the action %s, and the request is for %s", said.Operator, said.Action, in.Action)
	case said.Message != in.Message:
		return tutti.Errorf(tutti.CodeRefused, "%s has signed the message %q, and the request has %q", said.Operator, said.Message, in.Message)
	case said.Force != in.Force:
		return tutti.Errorf(tutti.CodeRefused, "%s has signed force %t, and the request has force %t", said.Operator, said.Force, in.Force)
	case v != nil && v.Name != said.Operator:
		return tutti.Errorf(tutti.CodeRefused, "%s has signed the action %s, but %s requests it: request only what you have signed yourself", said.Operator, said.Action, v.Name)
	}
	return nil
}
