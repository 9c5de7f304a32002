package operators

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/server/core"
)

const maxFleetFile = 1 << 20

// MissingBlobs implements tutti.Codes.
func (s *Operators) MissingBlobs(ctx context.Context, digests []tutti.Digest) ([]tutti.Digest, error) {
	var out []tutti.Digest
	for _, d := range digests {
		if err := d.Validate(); err != nil {
			return nil, err
		}
		has, err := s.Opts.Blobs.Has(ctx, d)
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
func (s *Operators) PutBlob(ctx context.Context, content []byte) (tutti.Digest, error) {
	if len(content) > core.MaxBlob {
		return "", tutti.Errorf(tutti.CodeInvalid, "a file of %d bytes, at most %d", len(content), core.MaxBlob)
	}
	if err := s.Opts.Space(); err != nil {
		return "", err
	}
	return s.Opts.Blobs.Put(ctx, content)
}

// PushCode implements tutti.Codes. All files must be on the server already. PushCode stores the manifest
// and its signature as one blob. The log has the digest of the code, which leads to this blob.
func (s *Operators) PushCode(ctx context.Context, in tutti.CodePush) (tutti.CodePushed, error) {
	var out tutti.CodePushed
	if err := s.Opts.Space(); err != nil {
		return out, err
	}
	said, err := s.signedFor(ctx, in.SignedCode)
	if err != nil {
		return out, err
	}
	manifest, err := core.Decode[tutti.CodeManifest]("manifest", in.Manifest)
	if err == nil {
		err = manifest.Validate() // without this check, the server would accept a manifest that nodes refuse
	}
	if err != nil {
		return out, err
	}
	if in.Source != nil {
		if err := in.Source.Validate(); err != nil {
			return out, err
		}
	}
	out = tutti.CodePushed{Environment: manifest.Environment, Source: in.Source, Code: tutti.DigestOf(in.Manifest), Files: len(manifest.Files), Counter: said.Counter, Statement: in.Statement}
	if len(manifest.Files) > core.MaxCodeFiles {
		return out, tutti.Errorf(tutti.CodeInvalid, "%d files, at most %d", len(manifest.Files), core.MaxCodeFiles)
	}
	for name, f := range manifest.Files {
		out.Bytes += f.Size
		if f.Link != "" {
			continue
		}
		if has, err := s.Opts.Blobs.Has(ctx, f.Digest); err != nil || !has {
			return out, tutti.Wrap(tutti.CodeConflict, core.OrMissing(err), "%s", name)
		}
	}
	// The statement is in the log and not in the blob, because another key may sign the same text later.
	signed, err := json.Marshal(tutti.SignedCode{Manifest: in.Manifest, Signature: in.Signature})
	if err != nil {
		return out, err
	}
	if out.Signed, err = s.Opts.Blobs.Put(ctx, signed); err != nil {
		return out, err
	}
	return out, s.lasting(ctx, "push code", func(tx *tx) error {
		if in.Statement != nil { // a rotation of the key may have ended while the push was under way
			if _, err := s.Opts.Identity.Said(tx.Registry.Trust, *in.Statement); err != nil {
				return err
			}
		}
		now, known := tx.Registry.Code[out.Environment]
		if gone := tx.Registry.Gone[out.Environment]; !known {
			now.Counter, now.Statement = gone.Counter, gone.Statement
		}
		if now.Statement != nil { // nodes refuse code if only untrusted keys have signed it
			if _, err := s.Opts.Identity.Said(tx.Registry.Trust, *now.Statement); err != nil {
				now.Counter, now.Statement = 0, nil
			}
		}
		if !known {
			now.Statement = nil // the same statement is no push of the code that the environment has
		}
		again, err := mayPush(now, in.SignedCode, said, tx.counted())
		switch {
		case err != nil || again:
			return err
		case now.Code == out.Code: // the code is the same, but was signed in another way, for example by an earlier release of Tutti
			tx.Emit(tutti.Actor(ctx), &tutti.CodeResigned{Environment: out.Environment, Code: out.Code, Counter: said.Counter, Statement: *in.Statement})
			return nil
		}
		reaction := in.Reaction
		if core.MayOf(ctx, tx.State, tutti.VerbAdmin, "") != nil {
			reaction = nil // the present fleet file decides how nodes react
		}
		tx.hold(&out, reaction)
		tx.Emit(tutti.Actor(ctx), &out)
		return nil
	})
}

// signedFor checks the signatures of code with the keys that are trusted now. A push needs the writer in any
// case. So signedFor also asks the writer, and slow readers cannot delay the push.
func (s *Operators) signedFor(ctx context.Context, in tutti.SignedCode) (tutti.Signed, error) {
	var trust []tutti.Statement
	if err := s.do(ctx, func(tx *tx) error {
		trust = slices.Clone(tx.Registry.Trust)
		return nil
	}); err != nil {
		return tutti.Signed{}, err
	}
	return s.Opts.Identity.Code(trust, in)
}

// maxPassedOver is the largest number of pushed and never released codes that the server remembers.
const maxPassedOver = 20

// The method `hold` completes the event of a push. If nodes do not react to the push at once, the event says so,
// and names the code that they use until a release.
func (tx *tx) hold(push *tutti.CodePushed, reaction *tutti.CodeReaction) {
	if f := tx.Registry.Fleet; reaction == nil && f != nil && f.Reaction != nil {
		reaction = &f.Reaction.Code
	}
	before := tx.Registry.Code[push.Environment]
	if reaction == nil || !reaction.Holds() || before.Held && before.Released == push.Code {
		return // nodes react at once, or the pushed code is the code that the nodes have now
	}
	push.Held, push.Canary, push.Released = true, reaction.Canary, before.Goes()
	if before.Held {
		push.PassedOver = slices.Concat(before.PassedOver, []tutti.Digest{before.Code})
		push.PassedOver = push.PassedOver[max(0, len(push.PassedOver)-maxPassedOver):]
	}
}

// ReleaseCode implements tutti.Codes.
func (s *Operators) ReleaseCode(ctx context.Context, environment string) (tutti.CodeReleased, error) {
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

// SetFleet implements tutti.Codes. If the fleet file has an error, SetFleet changes nothing.
func (s *Operators) SetFleet(ctx context.Context, in api.FleetSource) (tutti.Fleet, error) {
	if len(in.Source) > maxFleetFile {
		return tutti.Fleet{}, tutti.Errorf(tutti.CodeInvalid, "%s: %d bytes, at most %d", in.File, len(in.Source), maxFleetFile)
	}
	// reading a fleet file takes time and memory, so only an admin can make the server read a
	// changed file
	if core.VisitOf(ctx) != nil {
		if err := s.do(ctx, func(tx *tx) error { return tx.MayChange(ctx, tutti.DigestOf(in.Source)) }); err != nil {
			return tutti.Fleet{}, err
		}
	}
	f, err := fleet.Parse(in.File, in.Source)
	if err != nil {
		return tutti.Fleet{}, err
	}
	if err := s.Opts.Space(); err != nil {
		return tutti.Fleet{}, err
	}
	if err := s.checkDefined(ctx, in.File, f); err != nil {
		return tutti.Fleet{}, err
	}
	if err := s.checkEnvironments(ctx, in.File, f); err != nil {
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

// signedPlans checks the signature of a fleet file with the keys that are trusted now.
func (s *Operators) signedPlans(ctx context.Context, in tutti.Statement) (tutti.SignedPlans, error) {
	var trust []tutti.Statement
	if err := s.Look(ctx, func(v explain.View) error {
		trust = slices.Clone(v.Registry.Trust)
		return nil
	}); err != nil {
		return tutti.SignedPlans{}, err
	}
	return s.Opts.Identity.Plans(trust, in)
}

// checkEnvironments refuses a fleet file whose groups or steps name an environment of `puppet apply` that has no code. An
// environment that is new in the fleet file is most often misspelt, or was not pushed first.
func (s *Operators) checkEnvironments(ctx context.Context, file string, f tutti.Fleet) error {
	return s.Look(ctx, func(v explain.View) error {
		check := func(what, environment string, program tutti.Program) error {
			if environment == "" || environment == f.Environment.Name || program == tutti.ProgramAgent || program == tutti.ProgramObserve || v.Registry.Code[environment].Code != "" {
				return nil
			}
			known := slices.Sorted(maps.Keys(v.Registry.Code))
			return tutti.Errorf(tutti.CodeInvalid, "%s: %s: environment %q has no code; push it first: tutti code push --environment %s, or correct the name (there is code of: %s)",
				file, what, environment, environment, cmp.Or(strings.Join(known, ", "), "none"))
		}
		for _, g := range f.Groups {
			if err := check("group "+string(g.Name), g.Environment, cmp.Or(g.Program, f.Program)); err != nil {
				return err
			}
		}
		for _, p := range f.Plans {
			for _, st := range p.Steps {
				if st.Kind() != tutti.StepRun {
					continue
				}
				program := st.Run.Program
				if program == "" && slices.ContainsFunc(f.Groups, func(g tutti.Group) bool { return g.Program == tutti.ProgramAgent }) {
					continue // the step may run nodes of a Puppet Server
				}
				if err := check(fmt.Sprintf("plan %s: step %s", p.Name, st.Name), st.Run.Environment, cmp.Or(program, f.Program)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// checkDefined refuses a grant that says `defined: true` for a type if the latest pushed code of an environment has a
// native type of that name.
func (s *Operators) checkDefined(ctx context.Context, file string, f tutti.Fleet) error {
	defined := map[string]string{} // from the name of the file that would define a native type to the name of the type
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
	var digests []tutti.Digest
	if err := s.Look(ctx, func(v explain.View) error {
		for _, environment := range slices.Sorted(maps.Keys(v.Registry.Code)) {
			digests = append(digests, v.Registry.Signed[v.Registry.Code[environment].Code])
		}
		return nil
	}); err != nil {
		return err
	}
	for _, digest := range digests {
		if err := s.checkNative(ctx, file, digest, defined); err != nil {
			return err
		}
	}
	return nil
}

// checkNative refuses native types in code. The map `defined` leads from the name of a file that would define a native
// type to the name of the type. The digest is of the signed manifest of the code.
func (s *Operators) checkNative(ctx context.Context, file string, digest tutti.Digest, defined map[string]string) error {
	raw, err := s.Opts.Blobs.Get(ctx, digest)
	if err != nil {
		return err
	}
	signed, err := core.Decode[tutti.SignedCode]("signed code", raw)
	if err != nil {
		return err
	}
	manifest, err := core.Decode[tutti.CodeManifest]("manifest", signed.Manifest)
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

// setFleet makes a fleet file the current one. The function withdraws the exports and values for which
// nodes have no grant in the new file. Before the withdrawal, setFleet stores the exports that the
// nodes keep. If a node publishes something in the meantime, setFleet tries again.
func (s *Operators) setFleet(ctx context.Context, set *tutti.FleetSet) error {
	const tries = 5
	kept := map[tutti.Digest]bool{"": true}
	for again := range tries {
		var plan []explain.Ungranted
		if err := s.Look(ctx, func(v explain.View) error {
			plan = explain.UngrantedBy(v.State, set.Fleet)
			return nil
		}); err != nil {
			return err
		}
		for _, u := range plan {
			digest, err := s.StoreExports(ctx, nil, u.Keeps)
			if err != nil {
				return err
			}
			kept[digest] = true
		}
		done := false
		if err := s.lasting(ctx, "push a fleet file", func(tx *tx) (err error) {
			if err := tx.MayReplace(ctx, set.Fleet, set.Digest); err != nil {
				return err
			}
			set.Where = fleet.NextWhere(tx.Registry.Where, tx.Registry.Conditions, set.Fleet)
			done, err = tx.setFleet(tutti.Actor(ctx), set, again == 0 && len(plan) == 0, kept)
			return err
		}); err != nil || done {
			return err
		}
	}
	return tutti.Errorf(tutti.CodeUnavailable, "fleet file: nodes publish without a grant faster than the server can withdraw it: push the file again")
}

// setFleet reports whether it has set the file. The function returns false if the exports that a node keeps are not
// stored yet. The parameter `nothing` is set if an earlier try with the same file found nothing to withdraw.
func (tx *tx) setFleet(by string, set *tutti.FleetSet, nothing bool, kept map[tutti.Digest]bool) (bool, error) {
	// If a release before 0.3.0 stored the same file, its grants have another meaning, so the file
	// counts as changed.
	same := tx.Registry.FleetDigest == set.Digest && !policy.Old(tx.Fleet()) &&
		(set.Statement == nil || tx.Registry.Plans != nil && bytes.Equal(set.Statement.Body, tx.Registry.Plans.Body))
	switch {
	case set.Statement == nil:
		set.Counter = tx.Registry.PlansCounter
	case !same && set.Counter <= tx.Registry.PlansCounter:
		return false, tutti.Errorf(tutti.CodeConflict, "the fleet file was signed with the counter %d, and the last one had %d: somebody has pushed meanwhile; push again", set.Counter, tx.Registry.PlansCounter)
	case !same && tutti.Leaps(tx.Registry.PlansCounter, set.Counter):
		return false, tutti.Errorf(tutti.CodeRefused, "the fleet file was signed with the counter %d, and the last one had %d: a counter may be at most %d above the last one; if that was not you, somebody else has the code-signing key", set.Counter, tx.Registry.PlansCounter, tutti.MaxCounterStep)
	}
	if same && nothing {
		return true, nil
	}
	if !same {
		if err := tx.NoNodes(set.Fleet.Groups); err != nil {
			return false, err
		}
		if err := tx.noSecretReaders(set.Fleet); err != nil {
			return false, err
		}
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
		tx.dropInventory(set.Fleet.Inventory)
	}
	for i, u := range plan {
		tx.MayCut()
		for _, key := range u.Values {
			tx.Emit(by, &tutti.ValueUnset{Key: key, Owner: u.Node})
		}
		// Emit a set of exports even if the file only withdraws values. A set of exports that no run
		// has published shows that the node must run.
		tx.Emit(by, &tutti.ExportsSet{Node: u.Node, Set: digests[i], Count: len(u.Keeps), Exports: u.Keeps})
	}
	return true, nil
}
