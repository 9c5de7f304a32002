package server

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/wire"
)

const (
	maxBlob      = 64 << 20
	maxFleetFile = 1 << 20
	maxCodeFiles = 200_000
)

// MissingBlobs implements tutti.Codes.
func (s *Server) MissingBlobs(ctx context.Context, digests []tutti.Digest) ([]tutti.Digest, error) {
	var out []tutti.Digest
	for _, d := range digests {
		if err := d.Validate(); err != nil {
			return nil, err
		}
		has, err := s.opts.Blobs.Has(ctx, d)
		if err != nil {
			return nil, err
		}
		if !has {
			out = append(out, d)
		}
	}
	return out, nil
}

// PutBlob implements tutti.Codes.
func (s *Server) PutBlob(ctx context.Context, content []byte) (tutti.Digest, error) {
	if len(content) > maxBlob {
		return "", tutti.Errorf(tutti.CodeInvalid, "a file of %d bytes, at most %d", len(content), maxBlob)
	}
	if err := s.opts.Space(); err != nil {
		return "", err
	}
	return s.opts.Blobs.Put(ctx, content)
}

// PushCode implements tutti.Codes. All files must be there; the manifest and
// its signature become one blob, found by the code's digest through the log.
func (s *Server) PushCode(ctx context.Context, in tutti.CodePush) (tutti.CodePushed, error) {
	var out tutti.CodePushed
	if err := s.opts.Space(); err != nil {
		return out, err
	}
	said, err := s.signedFor(ctx, in.SignedCode)
	if err != nil {
		return out, err
	}
	manifest, err := decode[tutti.CodeManifest]("manifest", in.Manifest)
	if err == nil {
		err = manifest.Validate() // no node would take it
	}
	if err != nil {
		return out, err
	}
	out = tutti.CodePushed{Environment: manifest.Environment, Code: tutti.DigestOf(in.Manifest), Files: len(manifest.Files), Counter: said.Counter, Statement: in.Statement}
	if len(manifest.Files) > maxCodeFiles {
		return out, tutti.Errorf(tutti.CodeInvalid, "%d files, at most %d", len(manifest.Files), maxCodeFiles)
	}
	for name, f := range manifest.Files {
		out.Bytes += f.Size
		if f.Link != "" {
			continue
		}
		if has, err := s.opts.Blobs.Has(ctx, f.Digest); err != nil || !has {
			return out, tutti.Wrap(tutti.CodeConflict, orMissing(err), "%s", name)
		}
	}
	// The statement is in the log: the same text may be signed again.
	signed, err := json.Marshal(tutti.SignedCode{Manifest: in.Manifest, Signature: in.Signature})
	if err != nil {
		return out, err
	}
	if out.Signed, err = s.opts.Blobs.Put(ctx, signed); err != nil {
		return out, err
	}
	return out, s.lasting(ctx, "push code", func(tx *tx) error {
		if in.Statement != nil { // a rotation of the key may have ended meanwhile
			if _, err := s.opts.Identity.Said(tx.Registry.Trust, *in.Statement); err != nil {
				return err
			}
		}
		now := tx.Registry.Code[out.Environment]
		if now.Statement != nil { // nobody takes what a key has signed that is trusted no more
			if _, err := s.opts.Identity.Said(tx.Registry.Trust, *now.Statement); err != nil {
				now.Counter, now.Statement = 0, nil
			}
		}
		again, err := mayPush(now, in.SignedCode, said, tx.counted())
		switch {
		case err != nil || again:
			return err
		case now.Code == out.Code: // a release of before had pushed it
			tx.Emit(tutti.Actor(ctx), &tutti.CodeResigned{Environment: out.Environment, Code: out.Code, Counter: said.Counter, Statement: *in.Statement})
			return nil
		}
		reaction := in.Reaction
		if mayOf(ctx, tx.State, tutti.VerbAdmin, "") != nil {
			reaction = nil // the fleet file that is there says how nodes react
		}
		tx.hold(&out, reaction)
		tx.Emit(tutti.Actor(ctx), &out)
		return nil
	})
}

// signedFor checks what was signed of code, by the keys that are trusted now. It asks the writer, whose turn a push needs in
// any case: it does not wait for readers that look for long.
func (s *Server) signedFor(ctx context.Context, in tutti.SignedCode) (tutti.Signed, error) {
	var trust []tutti.Statement
	if err := s.do(ctx, func(tx *tx) error {
		trust = slices.Clone(tx.Registry.Trust)
		return nil
	}); err != nil {
		return tutti.Signed{}, err
	}
	return s.opts.Identity.Code(trust, in)
}

// maxPassedOver bounds the codes that are remembered as never released.
const maxPassedOver = 20

// hold notes in a push whether nodes react to it, and with what they go on if not.
func (tx *tx) hold(push *tutti.CodePushed, reaction *tutti.CodeReaction) {
	if f := tx.Registry.Fleet; reaction == nil && f != nil && f.Reaction != nil {
		reaction = &f.Reaction.Code
	}
	before := tx.Registry.Code[push.Environment]
	if reaction == nil || !reaction.Holds() || before.Held && before.Released == push.Code {
		return // or it is taken back to what nodes have
	}
	push.Held, push.Canary, push.Released = true, reaction.Canary, before.Goes()
	if before.Held {
		push.PassedOver = slices.Concat(before.PassedOver, []tutti.Digest{before.Code})
		push.PassedOver = push.PassedOver[max(0, len(push.PassedOver)-maxPassedOver):]
	}
}

// ReleaseCode implements tutti.Codes.
func (s *Server) ReleaseCode(ctx context.Context, environment string) (tutti.CodeReleased, error) {
	var out tutti.CodeReleased
	return out, s.lasting(ctx, "release code", func(tx *tx) error {
		if environment == "" {
			environment = tx.Fleet().Environment.Name
		}
		code, known := tx.Registry.Code[environment]
		switch {
		case !known:
			return tutti.Errorf(tutti.CodeNotFound, "no code was pushed for environment %q; push it with: tutti code push", environment)
		case !code.Held:
			return tutti.Errorf(tutti.CodeConflict, "the code of environment %s, %.19s, is not held: nodes run with it", environment, code.Code)
		}
		out = tutti.CodeReleased{Environment: environment, Code: code.Code}
		body := out
		tx.Emit(tutti.Actor(ctx), &body)
		return nil
	})
}

// SetFleet implements tutti.Codes. A fleet file with an error changes nothing.
func (s *Server) SetFleet(ctx context.Context, in api.FleetSource) (tutti.Fleet, error) {
	if len(in.Source) > maxFleetFile {
		return tutti.Fleet{}, tutti.Errorf(tutti.CodeInvalid, "%s: %d bytes, at most %d", in.File, len(in.Source), maxFleetFile)
	}
	f, err := fleet.Parse(in.File, in.Source)
	if err != nil {
		return tutti.Fleet{}, err
	}
	if err := s.opts.Space(); err != nil {
		return tutti.Fleet{}, err
	}
	if err := s.checkDefined(ctx, in.File, f); err != nil {
		return tutti.Fleet{}, err
	}
	set := &tutti.FleetSet{Fleet: f, Digest: tutti.DigestOf(in.Source), Source: string(in.Source), Statement: in.Statement}
	if in.Statement != nil {
		said, err := s.signedPlans(ctx, *in.Statement)
		if err == nil && said.Digest != set.Digest {
			err = tutti.Errorf(tutti.CodeRefused, "%s: another fleet file was signed: %.19s", in.File, said.Digest)
		}
		if err != nil {
			return tutti.Fleet{}, err
		}
		set.Counter = said.Counter
	}
	return f, s.setFleet(ctx, set)
}

// signedPlans checks what was signed of a fleet file, by the keys that are trusted now.
func (s *Server) signedPlans(ctx context.Context, in tutti.Statement) (tutti.SignedPlans, error) {
	var trust []tutti.Statement
	if err := s.look(ctx, func(v explain.View) error {
		trust = slices.Clone(v.Registry.Trust)
		return nil
	}); err != nil {
		return tutti.SignedPlans{}, err
	}
	return s.opts.Identity.Plans(trust, in)
}

// checkDefined refuses grants that call a type defined which the code that was pushed last has as a native one.
func (s *Server) checkDefined(ctx context.Context, file string, f tutti.Fleet) error {
	defined := map[string]string{} // the base name of the file of a native type → the type
	for _, g := range f.Grants {
		for _, t := range g.Types {
			if t.Defined {
				defined[strings.ToLower(t.Type)+".rb"] = t.Type
			}
		}
	}
	if len(defined) == 0 {
		return nil
	}
	var digest tutti.Digest
	if err := s.look(ctx, func(v explain.View) error {
		digest = v.Registry.Signed[v.Registry.Code[f.Environment.Name].Code]
		return nil
	}); err != nil || digest == "" {
		return err
	}
	raw, err := s.opts.Blobs.Get(ctx, digest)
	if err != nil {
		return err
	}
	signed, err := decode[tutti.SignedCode]("signed code", raw)
	if err != nil {
		return err
	}
	manifest, err := decode[tutti.CodeManifest]("manifest", signed.Manifest)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(manifest.Files)) {
		if t := defined[path.Base(name)]; t != "" && strings.HasSuffix(path.Dir(name), "lib/puppet/type") {
			return tutti.Errorf(tutti.CodeInvalid, "%s: grant: exports: %s is a native type, %s defines it (leave `defined` out, and if that is meant, add `dangerous: true`)", file, t, name)
		}
	}
	return nil
}

// setFleet makes a fleet file the current one, and withdraws what nodes have published and it does not grant
// them. What they keep is stored before: who publishes meanwhile makes that to be done again.
func (s *Server) setFleet(ctx context.Context, set *tutti.FleetSet) error {
	const tries = 5
	kept := map[tutti.Digest]bool{"": true}
	for again := range tries {
		var plan []explain.Ungranted
		if err := s.look(ctx, func(v explain.View) error {
			plan = explain.UngrantedBy(v.State, set.Fleet)
			return nil
		}); err != nil {
			return err
		}
		for _, u := range plan {
			digest, err := s.storeExports(ctx, nil, u.Keeps)
			if err != nil {
				return err
			}
			kept[digest] = true
		}
		done := false
		if err := s.lasting(ctx, "push a fleet file", func(tx *tx) (err error) {
			if err := tx.mayReplace(ctx, set.Fleet, set.Digest); err != nil {
				return err
			}
			done, err = tx.setFleet(tutti.Actor(ctx), set, again == 0 && len(plan) == 0, kept)
			return err
		}); err != nil || done {
			return err
		}
	}
	return tutti.Errorf(tutti.CodeUnavailable, "fleet file: nodes publish what it does not grant, faster than it is withdrawn: push it again")
}

// setFleet reports whether it could: it cannot if what a node keeps is not stored. nothing: with the same
// fleet file there was nothing to withdraw.
func (tx *tx) setFleet(by string, set *tutti.FleetSet, nothing bool, kept map[tutti.Digest]bool) (bool, error) {
	same := tx.Registry.FleetDigest == set.Digest && !policy.Old(tx.Fleet()) && // of an old release it means something else
		(set.Statement == nil || tx.Registry.Plans != nil && bytes.Equal(set.Statement.Body, tx.Registry.Plans.Body))
	switch {
	case set.Statement == nil:
		set.Counter = tx.Registry.PlansCounter
	case !same && set.Counter <= tx.Registry.PlansCounter:
		return false, tutti.Errorf(tutti.CodeConflict, "the fleet file was signed with the counter %d, and the last one had %d: somebody has pushed meanwhile; push again", set.Counter, tx.Registry.PlansCounter)
	case !same && tutti.Leaps(tx.Registry.PlansCounter, set.Counter):
		return false, tutti.Errorf(tutti.CodeRefused, "the fleet file was signed with the counter %d, and the last one had %d: no signer leaves out more than %d; if that was not you, somebody else has the code-signing key", set.Counter, tx.Registry.PlansCounter, tutti.MaxCounterStep)
	}
	if same && nothing {
		return true, nil
	}
	plan := explain.UngrantedBy(tx.State, set.Fleet)
	digests := make([]tutti.Digest, len(plan))
	for i, u := range plan {
		if len(u.Keeps) > 0 {
			raw, err := json.Marshal(u.Keeps)
			if err != nil {
				return false, err
			}
			digests[i] = tutti.DigestOf(raw)
		}
		if !kept[digests[i]] {
			return false, nil
		}
	}
	if !same {
		tx.Emit(by, set)
	}
	for i, u := range plan {
		tx.MayCut()
		for _, key := range u.Values {
			tx.Emit(by, &tutti.ValueUnset{Key: key, Owner: u.Node})
		}
		// Also where only values go: a set that no run has published says that the node has to run.
		tx.Emit(by, &tutti.ExportsSet{Node: u.Node, Set: digests[i], Count: len(u.Keeps), Exports: u.Keeps})
	}
	return true, nil
}

// codeGet gives a node the manifest of the code that it was told to run.
func (s *Server) codeGet(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := decode[wire.CodeGet](wire.OpCode, payload)
	if err != nil {
		return nil, err
	}
	out, leave, err := s.signedCode(ctx, key, in.Run, in.Code)
	if err != nil {
		return nil, err
	}
	tutti.TurnOf(ctx).AfterAnswer(leave)
	return out, nil
}

// signedCode reads the code that a node was told to run. leave has to follow as with Readings.Enter.
func (s *Server) signedCode(ctx context.Context, key tutti.NodeKey, run tutti.RunID, code tutti.Digest) (out tutti.SignedCode, leave func(), err error) {
	var blob tutti.Digest
	var statement *tutti.Statement
	err = s.do(ctx, func(tx *tx) error {
		n, r, err := tx.nodeRun(key, run)
		if err != nil {
			return err
		}
		if code != "" && r.Code != code {
			err := tutti.Errorf(tutti.CodeRefused, "run %s was not told to use the code %s", r.Run, code)
			return tx.deny(tutti.ActorNode(n.Node), "fetch code "+string(code), err)
		}
		blob = tx.Registry.Signed[r.Code]
		if blob == "" {
			return tutti.Errorf(tutti.CodeNotFound, "the code %s of run %s is not here", r.Code, r.Run)
		}
		if st, ok := tx.Registry.Statements[r.Code]; ok {
			statement = &st
		}
		return nil
	})
	if err != nil {
		return out, nil, err
	}
	size, _, err := s.sizeOf(ctx, blob)
	if err != nil {
		return out, nil, err
	}
	if leave, err = s.readings.Enter(ctx, key, share.CostOfManifest*size); err != nil {
		return out, nil, err
	}
	raw, err := s.opts.Blobs.Get(ctx, blob)
	if err == nil {
		out, err = decode[tutti.SignedCode]("signed code", raw)
	}
	if err != nil {
		leave()
		return out, nil, err
	}
	out.Statement = statement
	return out, leave, nil
}

// blobGet gives a node one file of the code that it was told to run, and
// nothing else that the server keeps.
func (s *Server) blobGet(ctx context.Context, key tutti.NodeKey, payload []byte) ([]byte, error) {
	in, err := decode[wire.BlobGet](wire.OpBlobGet, payload)
	if err != nil {
		return nil, err
	}
	files, err := s.codeFiles(ctx, key, in.Run)
	if err != nil {
		return nil, err
	}
	size, is := files[in.Digest]
	if !is {
		err := tutti.Errorf(tutti.CodeRefused, "%s is no file of the code of run %s", in.Digest, in.Run)
		return nil, s.denyKey(ctx, key, "fetch "+string(in.Digest), err)
	}
	leave, err := s.readings.Enter(ctx, key, size)
	if err != nil {
		return nil, err
	}
	tutti.TurnOf(ctx).AfterAnswer(leave)
	return s.opts.Blobs.Get(ctx, in.Digest)
}

// codeFiles returns the files of a run's code and how large its manifest says they are, remembered for
// the code that was asked for last.
func (s *Server) codeFiles(ctx context.Context, key tutti.NodeKey, run tutti.RunID) (map[tutti.Digest]int64, error) {
	var code tutti.Digest
	err := s.do(ctx, func(tx *tx) error {
		_, r, err := tx.nodeRun(key, run)
		if err == nil {
			code = r.Code
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if last := s.files.Load(); last != nil && last.code == code {
		return last.sizes, nil
	}
	signed, leave, err := s.signedCode(ctx, key, run, code)
	if err != nil {
		return nil, err
	}
	defer leave()
	manifest, err := decode[tutti.CodeManifest]("manifest", signed.Manifest)
	if err != nil {
		return nil, err
	}
	sizes := map[tutti.Digest]int64{}
	for _, f := range manifest.Files {
		sizes[f.Digest] = max(sizes[f.Digest], f.Size)
	}
	s.files.Store(&codeFiles{code: code, sizes: sizes})
	return sizes, nil
}

type codeFiles struct {
	code  tutti.Digest
	sizes map[tutti.Digest]int64
}

func (s *Server) denyKey(ctx context.Context, key tutti.NodeKey, what string, cause error) error {
	return s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key)
		if err != nil {
			return err
		}
		return tx.deny(tutti.ActorNode(n.Node), what, cause)
	})
}

// blobPut keeps a report, a log or a record that a node sends before the
// result that names it. What is here already is not kept again and costs nothing.
func (s *Server) blobPut(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	out := wire.BlobStored{Digest: tutti.DigestOf(payload)}
	may := func(check func(*tx, *fold.Node) error) error {
		return s.do(ctx, func(tx *tx) error {
			n, err := tx.node(key)
			if err != nil {
				return err
			}
			return check(tx, n)
		})
	}
	// First whether it may: who is told what is here already can guess what others have sent.
	if err := may(func(tx *tx, n *fold.Node) error { return tx.mayBring(n, out.Digest) }); err != nil {
		return nil, err
	}
	has, err := s.opts.Blobs.Has(ctx, out.Digest)
	if err != nil || has {
		return out, err
	}
	if err := may(func(tx *tx, n *fold.Node) error { return tx.mayStore(n, int64(len(payload))) }); err != nil {
		return nil, err
	}
	if len(payload) > maxBlob {
		return out, tutti.Errorf(tutti.CodeInvalid, "%d bytes, at most %d", len(payload), maxBlob)
	}
	out.Digest, err = s.opts.Blobs.Put(ctx, slices.Clone(payload))
	return out, err
}

// mayBring refuses a node without a run whose result is to come. What its last result names may come once more: it has
// not heard the answer.
func (tx *tx) mayBring(n *fold.Node, digest tutti.Digest) error {
	if n.Unended > 0 {
		return nil
	}
	if r := tx.Engine.Runs[n.LastClaimed]; r != nil && r.Result != nil && slices.Contains([]tutti.Digest{r.Result.Report, r.Result.Log, r.Result.Record}, digest) {
		return nil
	}
	return tx.mayStore(n, 0)
}

// mayStore bounds what a node can make the server keep: so much for each run
// whose result is to come.
func (tx *tx) mayStore(n *fold.Node, size int64) error {
	refused := func(format string, args ...any) error {
		return tx.deny(tutti.ActorNode(n.Node), "store a blob", tutti.Errorf(tutti.CodeRefused, format, args...))
	}
	switch {
	case n.LastClaimed == "":
		return refused("node %s never claimed a run", n.Node)
	case n.Unended == 0:
		return refused("node %s has no run whose result is to come", n.Node)
	}
	return tx.mayKeep(n, size, maxStored)
}

// mayKeep counts what a node makes the server keep before its run is known to have it: whoever does not wait for the
// answer leaves it behind.
func (tx *tx) mayKeep(n *fold.Node, size, most int64) error {
	if stored := tx.server.stored[n.Key]; stored+size > most {
		return tx.deny(tutti.ActorNode(n.Node), "store a blob",
			tutti.Errorf(tutti.CodeRefused, "node %s has stored %d bytes since its last result, at most %d", n.Node, stored, most))
	}
	tx.server.stored[n.Key] += size
	return nil
}

// sizeOf returns how large content is, and whether the store tells that. If it does not it is as large as any.
func (s *Server) sizeOf(ctx context.Context, digest tutti.Digest) (size int64, known bool, err error) {
	sizing, is := s.opts.Blobs.(tutti.Sizing)
	if !is {
		return maxBlob, false, nil
	}
	size, err = sizing.Size(ctx, digest)
	return size, true, err
}
