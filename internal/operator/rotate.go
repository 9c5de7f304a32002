package operator

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/killpoint"
)

// TrustFile is a file in an operator's directory. TrustFile contains the statements about code keys that the operator
// has verified or made. If a server was set back and has lost some statements, the operator's command sends them
// again. If a server has different statements, the command refuses the server.
const TrustFile = "trust.json"

// rotation is a rotation of the code-signing key and its progress.
type rotation struct {
	*Signer
	server cli.Server
	sign   func(what []string) error // asks the operator for permission to sign the things in `what`; nil: do not ask
	agreed map[tutti.Digest]bool     // digests of the statements about which the operator was asked
}

// RotateCodeKey does the next steps of a rotation. RotateCodeKey finds the next step by looking at the
// server and at the directory. So the command can be killed at any point and then repeated.
func RotateCodeKey(ctx context.Context, server cli.Server, c cli.Connection, in cli.RotateCodeKey) (cli.CodeKeyRotation, error) {
	if in.Status {
		said, err := server.Signing(ctx)
		if err != nil {
			return cli.CodeKeyRotation{}, err
		}
		out, err := rotationNow(ctx, server, said)
		if len(out.Keys) > 0 {
			out.NotVerified = notVerified(c.OperatorDir, said)
		}
		return out, err
	}
	r, err := newRotation(ctx, server, c.OperatorDir)
	if err != nil {
		return cli.CodeKeyRotation{}, err
	}
	r.sign = in.Confirm
	finished := false
	switch {
	case r.next != nil && len(r.now.Keys) == 1 && r.now.Has(PublicOf(r.next)): // an earlier call was killed before it finished
		finished, err = true, r.useNext()
	case in.Finish:
		finished, err = true, r.finish(ctx, in.Leave)
	default:
		err = r.begin(ctx)
	}
	if err != nil {
		return cli.CodeKeyRotation{}, err
	}
	out, err := rotationNow(ctx, server, r.Said)
	out.Finished = finished
	return out, err
}

func newRotation(ctx context.Context, server cli.Server, dir string) (*rotation, error) {
	r := &rotation{server: server}
	if err := r.look(ctx, dir); err != nil {
		return nil, err
	}
	if r.old {
		return nil, tutti.Errorf(tutti.CodeRefused, "the server is too old for statements about code keys: upgrade tutti there first")
	}
	if err := r.tellAgain(ctx); err != nil {
		return nil, err
	}
	if err := r.tellOperators(ctx); err != nil {
		return nil, err
	}
	return r, r.maySign()
}

// The method `look` reads the directory and the server's statements.
func (r *rotation) look(ctx context.Context, dir string) (err error) {
	r.Signer, err = NewSigner(ctx, r.server, dir)
	return err
}

// The method `begin` makes nodes trust both keys, and signs all code in use with the new key.
func (r *rotation) begin(ctx context.Context) error {
	if len(r.now.Keys) > 1 && (r.next == nil || !r.now.Has(PublicOf(r.next))) {
		return tutti.Errorf(tutti.CodeConflict, "another rotation goes on, and its new key is not in %s: finish this rotation in the directory where it began", r.dir)
	}
	for _, c := range r.Said.Codes {
		if c.Statement == nil {
			return tutti.Errorf(tutti.CodeConflict, "the code %.19s of environment %s was pushed by an earlier release, and has no counter: push it again first (tutti code push), or wait for the jobs that use it", c.Code, c.Environment)
		}
	}
	err := r.confirm(ctx)
	if err != nil {
		return err
	}
	if r.next, err = identity.MakeNextCodeKey(r.dir); err != nil {
		return err
	}
	killpoint.Here("rotate.key-made")
	if len(r.now.Keys) < 2 {
		if err := r.say(ctx, []ed25519.PrivateKey{r.own, r.next}, r.own, r.next); err != nil {
			return err
		}
	}
	return r.signCodes(ctx)
}

// The method `finish` makes nodes trust only the new key.
func (r *rotation) finish(ctx context.Context, leave []tutti.NodeName) error {
	if r.next == nil || len(r.now.Keys) != 2 || !r.now.Has(PublicOf(r.next)) {
		return tutti.Errorf(tutti.CodeConflict, "no rotation goes on in %s; begin one with: tutti rotate code-key", r.dir)
	}
	state, err := rotationNow(ctx, r.server, r.Said)
	if err != nil {
		return err
	}
	for _, name := range leave {
		i := slices.IndexFunc(state.Missing, func(n cli.NotThere) bool { return n.Node == name })
		if i < 0 {
			return tutti.Errorf(tutti.CodeInvalid, "--leave %s: this node does not exist, or trusts the new key already; see: tutti rotate code-key --status", name)
		}
		state.Missing = slices.Delete(state.Missing, i, i+1)
	}
	if len(state.Missing) > 0 {
		var names []string
		for _, n := range state.Missing {
			names = append(names, fmt.Sprintf("%s (%s)", n.Node, n.Why))
		}
		return tutti.Errorf(tutti.CodeConflict, "nodes do not trust the new key yet: %s; wait for them, or leave them behind with --leave", strings.Join(names, ", "))
	}
	if err := r.confirm(ctx); err != nil {
		return err
	}
	if err := r.signCodes(ctx); err != nil { // this signs code that was pushed after the rotation began
		return err
	}
	if err := r.say(ctx, []ed25519.PrivateKey{r.next}, r.next); err != nil {
		return err
	}
	killpoint.Here("rotate.finished")
	return r.useNext()
}

func (r *rotation) useNext() error {
	if err := identity.UseNextCodeKey(r.dir); err != nil {
		return err
	}
	killpoint.Here("rotate.used")
	return nil
}

// The method `say` makes the next statement about code keys, and sends it to the server.
func (r *rotation) say(ctx context.Context, keys []ed25519.PrivateKey, by ...ed25519.PrivateKey) error {
	body := tutti.Trusted{Fleet: r.fleet, Counter: r.now.Counter + 1}
	for _, key := range keys {
		body.Keys = append(body.Keys, identity.EncodeCodePublicKey(PublicOf(key)))
	}
	st, err := identity.State(tutti.StatementTrust, body, by...)
	if err != nil {
		return err
	}
	if err := writeTrust(r.dir, append(slices.Clone(r.chain), st)); err != nil {
		return err
	}
	killpoint.Here("rotate.remembered")
	if err := r.server.TrustKeys(ctx, st); err != nil {
		if tutti.CodeOf(err) == tutti.CodeConflict { // another operator was faster: drop this statement
			err = errors.Join(err, writeTrust(r.dir, r.chain))
		}
		return err
	}
	killpoint.Here("rotate.told")
	return r.look(ctx, r.dir)
}

// confirm shows the operator the statements that the new key will sign, and asks for permission. The
// operator must check them, because a thief of the old key may have signed some of them.
func (r *rotation) confirm(ctx context.Context) error {
	r.agreed = map[tutti.Digest]bool{}
	lacks := func(st *tutti.Statement) bool {
		if st == nil || r.next != nil && st.SignedBy(identity.KeyID(PublicOf(r.next))) {
			return false
		}
		r.agreed[tutti.DigestOf(st.Body)] = true
		return true
	}
	var what []string
	for _, c := range r.Said.Codes {
		if !lacks(c.Statement) {
			continue
		}
		said, err := r.Known.Said(*c.Statement)
		if err != nil {
			return tutti.Wrap("", err, "the code %.19s of environment %s is not signed again", c.Code, c.Environment)
		}
		what = append(what, fmt.Sprintf("code %.19s of environment %s, counter %d, %s", said.Digest, said.Environment, said.Counter, r.pushed(ctx, c)))
	}
	if lacks(r.Said.Operators) {
		last, err := r.lastOperators()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("list %d of operators who sign actions: %s", last.list.Counter, operatorsText(last.list.Operators))
		if since := without(last.list.Operators, last.before); len(since) > 0 {
			line += "; added since the list that is kept here: " + strings.Join(since, ", ")
		}
		if gone := without(last.before, last.list.Operators); len(gone) > 0 {
			line += "; gone since then: " + strings.Join(gone, ", ")
		}
		what = append(what, line)
	}
	if len(what) == 0 || r.sign == nil {
		return nil
	}
	return r.sign(what)
}

// sameAsAsked returns an error if confirm has not shown this statement to the operator.
func (r *rotation) sameAsAsked(st tutti.Statement, what string) error {
	if r.agreed[tutti.DigestOf(st.Body)] {
		return nil
	}
	return tutti.Errorf(tutti.CodeConflict, "%s has changed since you were asked: repeat the command (tutti rotate code-key)", what)
}

// pushed returns who has pushed code, according to the server.
func (r *rotation) pushed(ctx context.Context, c tutti.SignedNow) string {
	shown, err := r.server.ShowCode(ctx, api.CodeQuery{Environment: c.Environment})
	if err != nil {
		return "pushed by somebody whom the server does not name: " + err.Error()
	}
	for _, v := range []*api.CodeVersion{&shown.Pushed, shown.Before} {
		if v != nil && v.Code == c.Code && !v.At.IsZero() {
			return fmt.Sprintf("pushed by %s at %s, as the server says", v.By, v.At.UTC().Format(time.RFC3339))
		}
	}
	return "pushed at a time that the server does not know any more"
}

// signCodes adds the new key's signature to all code in use. The method removes all other signatures, except the
// signature of the operator's own key.
func (r *rotation) signCodes(ctx context.Context) error {
	for _, c := range r.Said.Codes {
		if c.Statement == nil || c.Statement.SignedBy(identity.KeyID(PublicOf(r.next))) {
			continue
		}
		if _, err := r.Known.Said(*c.Statement); err != nil {
			return tutti.Wrap("", err, "the code %.19s of environment %s is not signed again", c.Code, c.Environment)
		}
		if err := r.sameAsAsked(*c.Statement, "the code of environment "+c.Environment); err != nil {
			return err
		}
		if err := r.server.SignCode(ctx, tutti.CodeSign{Code: c.Code, Statement: identity.CoSign(r.bySelf(*c.Statement), r.next)}); err != nil {
			return err
		}
		killpoint.Here("rotate.signed")
	}
	return r.signOperators(ctx)
}

// signOperators adds the new key's signature to the list of operators who sign actions. Like signCodes, it removes
// the signatures of other keys.
func (r *rotation) signOperators(ctx context.Context) error {
	list := r.Said.Operators
	if list == nil || list.SignedBy(identity.KeyID(PublicOf(r.next))) {
		return nil
	}
	if _, err := r.Known.Operators(*list); err != nil {
		return err
	}
	if err := r.sameAsAsked(*list, "the list of operators who sign actions"); err != nil {
		return err
	}
	st := identity.CoSign(r.bySelf(*list), r.next)
	if err := r.server.TrustOperators(ctx, st); err != nil {
		return err
	}
	return WriteOperators(r.dir, st)
}

// tellOperators sends the directory's list of operators to a server that was set back. Without this,
// the new key would sign the server's earlier list. Nodes would accept this list and lose the later
// one.
func (r *rotation) tellOperators(ctx context.Context) error {
	last, err := r.lastOperators()
	if err != nil || last.kept == nil {
		return err
	}
	const again = "the server has lost the list of operators who sign actions, or shows an earlier one; sign it again: tutti operator trust"
	if _, err := r.Known.Operators(*last.kept); err != nil {
		return tutti.Wrap("", err, again)
	}
	if err := r.server.TrustOperators(ctx, *last.kept); err != nil {
		return tutti.Wrap("", err, again)
	}
	if err := r.look(ctx, r.dir); err != nil {
		return err
	}
	if last, err = r.lastOperators(); err == nil && last.kept != nil {
		err = tutti.Errorf(tutti.CodeRefused, again)
	}
	return err
}

// bySelf returns the statement st with the signature of the operator's own key, and without all other signatures.
func (r *rotation) bySelf(st tutti.Statement) tutti.Statement {
	st.Signatures = slices.DeleteFunc(slices.Clone(st.Signatures), func(s tutti.Signature) bool {
		return s.Key != identity.KeyID(PublicOf(r.own))
	})
	return st
}

func writeTrust(dir string, all []tutti.Statement) error {
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, TrustFile), append(raw, '\n'), 0o600)
}

// readTrust returns the statements in an operator's directory. The function returns nil if
// there are none.
func readTrust(dir string) ([]tutti.Statement, error) {
	file := filepath.Join(dir, TrustFile)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []tutti.Statement
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	return all, tutti.Wrap(tutti.CodeDamaged, err, "%s", file)
}

// tellAgain sends the statements that the directory has and the server lacks. The server was set back
// and has lost them, or it has never accepted them.
func (r *rotation) tellAgain(ctx context.Context) error {
	for _, st := range r.chain[min(len(r.Said.Trust), len(r.chain)):] {
		switch err := r.server.TrustKeys(ctx, st); {
		case tutti.CodeOf(err) == tutti.CodeConflict:
			// The server has code that only earlier keys have signed. With the new key, nobody can verify this code.
			return tutti.Wrap("", err, "tell the server again which code keys sign; push the code again (tutti code push --again), say again who signs actions (tutti operator trust), and repeat this")
		case err != nil:
			return tutti.Wrap("", err, "tell the server again which code keys sign")
		}
		if err := r.look(ctx, r.dir); err != nil {
			return err
		}
	}
	return nil
}

// rotationNow returns the present state of a rotation: the keys that sign now, and which nodes trust them.
func rotationNow(ctx context.Context, server cli.Server, said tutti.Signing) (cli.CodeKeyRotation, error) {
	out := cli.CodeKeyRotation{Missing: []cli.NotThere{}}
	last, any, err := identity.Last(said.Fleet, said.Trust)
	if err != nil || !any {
		return out, err
	}
	for _, key := range last.Keys {
		out.Keys = append(out.Keys, identity.KeyID(key))
	}
	out.GoesOn = len(last.Keys) > 1
	nodes, err := server.ListNodes(ctx)
	if err != nil {
		return out, err
	}
	for _, n := range nodes {
		if n.Trusts >= last.Counter {
			out.There++
			continue
		}
		out.Missing = append(out.Missing, cli.NotThere{Node: n.Node, Why: notThere(n)})
	}
	return out, nil
}

// notVerified compares an operator's directory with the keys that a server names. If the directory
// proves that these keys sign now, the function returns an empty string. If the directory does not
// prove it, the function returns the reason. The function stores nothing from the server.
func notVerified(dir string, said tutti.Signing) string {
	bundle, err := identity.LoadOperator(dir)
	if errors.Is(err, identity.ErrMissing) {
		return "there is no operator's directory here to verify the keys with"
	}
	var fleet tutti.Digest
	var kept []tutti.Statement
	if err == nil {
		fleet, err = identity.KeepFleet(dir, bundle.Pin())
	}
	if err == nil {
		kept, err = readTrust(dir)
	}
	if err != nil {
		return err.Error()
	}
	var own []ed25519.PublicKey
	if bundle.CodeKey != nil {
		own = append(own, PublicOf(bundle.CodeKey))
	}
	if next, err := identity.NextCodeKey(dir); err == nil && next != nil {
		own = append(own, PublicOf(next))
	}
	switch _, _, err := identity.Chain(fleet, kept, said.Trust, own...); {
	case err != nil && len(own) == 0:
		return "there is no code.key in " + dir + " to verify the keys with"
	case err != nil:
		return err.Error()
	case len(said.Trust) < len(kept):
		return "the server shows an earlier statement about code keys than " + dir + " has: the server was put back to an earlier state, or it lies"
	}
	return ""
}

func notThere(n api.NodeView) string {
	switch {
	case slices.Contains(n.TooOldFor, tutti.CapabilityStatements):
		return tutti.TooOld(n.Node, n.Version, []tutti.Capability{tutti.CapabilityStatements})
	case !n.Connected:
		return "not connected"
	case n.Active != "":
		return "it has not answered yet, run " + string(n.Active) + " goes on"
	case n.Trouble != "":
		return "it says: " + n.Trouble
	}
	return "it has not answered yet"
}
