package core

import (
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/policy"
)

// Seal emits a new secret, or adds pieces to the present secret.
func (tx *Tx) Seal(by string, owner tutti.NodeName, r *engine.Run, in tutti.SealSecret) error {
	to, err := tx.Recipients(in.For)
	if err != nil {
		return err
	}
	if len(to.Unknown) > 0 && !in.Adds {
		if had, is := tx.Data.Secret(in.Key); !is || !slices.Contains(had.Secret.For, tutti.ForGroup(to.Unknown[0])) {
			return UnknownGroup(to.Unknown[0])
		}
	}
	current, is := tx.Data.Secret(in.Key)
	switch {
	case in.Adds && (!is || current.Secret.ID != in.ID):
		return tutti.Errorf(tutti.CodeConflict, "secret %q has another value now, or does not exist: look with `tutti secret list`, and repeat the command", in.Key)
	case in.Adds && !in.Moves && !slices.Equal(in.For, current.Secret.For):
		return tutti.Errorf(tutti.CodeConflict, "secret %q is now for %s: repeat the command", in.Key, strings.Join(current.Secret.For, " "))
	case in.Moves && len(in.Recovery) == 0:
		return tutti.Errorf(tutti.CodeInvalid, "secret %q: to change the targets, send a new piece for the recovery key as well", in.Key)
	case in.Adds && !in.Moves && len(in.Recovery) > 0:
		return tutti.Errorf(tutti.CodeInvalid, "secret %q: the piece for the recovery key must stay as long as value and targets do not change", in.Key)
	case !in.Adds && is && current.Secret.ID == in.ID:
		return tutti.Errorf(tutti.CodeConflict, "secret %q already has this id: a new value needs a new id", in.Key)
	case !in.Adds && len(in.Recovery) == 0:
		return tutti.Errorf(tutti.CodeInvalid, "secret %q is not sealed to the recovery key", in.Key)
	}
	boxes := map[tutti.NodeName]tutti.Digest{}
	compiles := false // whether a node that compiles for others gets a piece
	for _, n := range to.Nodes {
		boxes[n.Node] = tutti.BoxDigest(n.BoxKey)
		compiles = compiles || policy.MayCompile(tx.Fleet(), tx.Registry.GroupsOf(n.Node), n.Node) == nil
	}
	if n := tx.Registry.Nodes[owner]; n != nil { // the node that made the secret can open it
		boxes[owner] = tutti.BoxDigest(n.BoxKey)
	}
	var pieces []tutti.Piece
	for _, p := range in.Pieces {
		if in.Adds && current.Boxes[p.Node] == p.Box {
			continue // another caller has already added a piece for this node's key, and that piece stays
		}
		pieces = append(pieces, p)
		switch box, named := boxes[p.Node]; {
		case !named:
			return tutti.Errorf(tutti.CodeConflict, "secret %q: it is not for node %s (any more): repeat", in.Key, p.Node)
		case box != p.Box:
			return tutti.Errorf(tutti.CodeConflict, "secret %q: node %s now has another key: repeat", in.Key, p.Node)
		case !compiles && tx.ProgramOf(p.Node) == tutti.ProgramAgent && p.Node != owner:
			return tutti.Errorf(tutti.CodeInvalid, "secret %q: a Puppet Server compiles for node %s and must open the secret: name the server's node as well, like --for node:puppet", in.Key, p.Node)
		}
	}
	if err := tx.Data.MayOwn(in.Key, owner); err != nil {
		return err
	}
	if in.Pieces = pieces; in.Adds && !in.Moves && len(pieces) == 0 {
		return nil
	}
	var run tutti.RunID
	var job tutti.JobID
	if r != nil {
		run, job = r.Run, r.Job
	}
	tx.Emit(by, &tutti.SecretSealed{Secret: in.Secret, Owner: owner, Run: run, Job: job})
	return nil
}

// UnknownGroup is the error for a group that is not in the fleet file.
func UnknownGroup(name tutti.GroupName) error {
	return tutti.Errorf(tutti.CodeNotFound, "no group %q in the fleet file", name)
}
