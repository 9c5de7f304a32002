package agent

import (
	"context"
	"encoding/json"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// groupsQuery is the question of tutti::groups. The server answers with the groups of the node for which Puppet compiles.
var groupsQuery = tutti.Query{Kind: tutti.QueryGroups}

// The method `groups` answers tutti::groups in a run of this node.
func (s *socket) groups(ctx context.Context, req request) (response, error) {
	a, err := s.ask(ctx, groupsQuery, req.At)
	if err != nil {
		return nil, tooOldForGroups(err)
	}
	out, err := groupsResponse(a.Answer)
	if err == nil {
		out["degraded"] = a.Degraded
	}
	return out, err
}

// The method `groups` answers tutti::groups in a compile of the Puppet Server.
func (c *compileConn) groups(ctx context.Context) (response, error) {
	a, err := c.ask(ctx, groupsQuery, nil)
	if err != nil {
		return nil, tooOldForGroups(err)
	}
	out, err := groupsResponse(a)
	if err == nil {
		out["digest"], out["seq"] = a.Digest, a.Seq
	}
	return out, err
}

// groupsResponse returns the groups for the module. A missing list is not an empty list.
func groupsResponse(a wire.Answer) (response, error) {
	var groups []tutti.GroupName
	if err := json.Unmarshal(a.Value, &groups); !a.Found || err != nil || groups == nil {
		return nil, tutti.Errorf(tutti.CodeInternal, "the server did not answer with the groups of the node")
	}
	return response{"groups": groups}, nil
}

// tooOldForGroups explains the refusal of a server that is older than the question.
func tooOldForGroups(err error) error {
	if tutti.CodeOf(err) != tutti.CodeInvalid {
		return err
	}
	return tutti.Errorf(tutti.CodeRefused, "tutti::groups needs a newer Tutti server: %s", err.Error())
}
