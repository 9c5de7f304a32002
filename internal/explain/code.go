package explain

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `pushes` contains the pushes of an environment: the push in the fold, and the pushes that the log still
// has. The latest push is last.
type pushes struct {
	now tutti.CodePushed
	log []tutti.Event
}

// ShowCode implements tutti.Codes.
func (rd *Reader) ShowCode(ctx context.Context, in api.CodeQuery) (api.CodeShown, error) {
	var out api.CodeShown
	p, err := rd.pushes(ctx, in.Environment)
	if err != nil {
		return out, err
	}
	out = api.CodeShown{Environment: p.now.Environment, Pushed: p.version(p.now.Code), Held: p.now.Held, Goes: p.now.Goes()}
	if out.Held {
		out.Canary = p.now.Canary
	}
	if before := p.before(); before != "" {
		version := p.version(before)
		out.Before = &version
		if out.Changes, err = rd.changes(ctx, p, before); err != nil {
			out.Changes, out.Unknown = nil, err.Error()
		}
	}
	return out, rd.look(ctx, func(v View) error {
		out.Signed, out.Plans = signedBy(p.now.Counter, p.now.Statement), signedBy(v.Registry.PlansCounter, v.Registry.Plans)
		out.Have, out.Others = v.having(p.now.Environment, p.now.Code)
		out.OtherNodes = len(out.Others)
		out.Others = slices.Clone(out.Others[:min(maxNamed, len(out.Others))])
		return nil
	})
}

func signedBy(counter uint64, of *tutti.Statement) api.SignedBy {
	out := api.SignedBy{Counter: counter}
	if of == nil {
		return api.SignedBy{}
	}
	for _, s := range of.Signatures {
		out.Keys = append(out.Keys, s.Key)
	}
	return out
}

// ReadCode implements tutti.Codes.
func (rd *Reader) ReadCode(ctx context.Context, in api.CodeQuery) (api.CodeRead, error) {
	p, code, err := rd.which(ctx, in)
	out := api.CodeRead{Code: code, Path: path.Clean(in.Path)}
	if err != nil {
		return out, err
	}
	manifest, err := rd.manifest(ctx, p, out.Code)
	if err != nil {
		return out, err
	}
	file, isFile := manifest.Files[out.Path]
	if !isFile {
		out.Below = below(manifest, out.Path)
		if len(out.Below) == 0 {
			return out, tutti.Errorf(tutti.CodeNotFound, "no file and no directory %q in the code %.19s; its files: tutti code show .", in.Path, out.Code)
		}
		return out, nil
	}
	out.File = file
	if file.Link != "" {
		return out, nil
	}
	if file.Size > api.MaxCodeRead {
		return out, tutti.Errorf(tutti.CodeInvalid, "%s has %d bytes: files with more than %d are not shown", out.Path, file.Size, api.MaxCodeRead)
	}
	out.Content, err = rd.blobs.Get(ctx, file.Digest)
	return out, tutti.Wrap("", err, "%s", out.Path)
}

// The function `below` returns the files below dir. If dir is not a directory, the function returns no files.
func below(m tutti.CodeManifest, dir string) map[string]tutti.CodeFile {
	out := map[string]tutti.CodeFile{}
	for name, f := range m.Files {
		if dir == "." || strings.HasPrefix(name, dir+"/") {
			out[name] = f
		}
	}
	return out
}

// The method `pushes` reads the pushes of an environment. If the environment is empty, the method uses the
// environment of the fleet file.
func (rd *Reader) pushes(ctx context.Context, environment string) (pushes, error) {
	all, fleets, err := allPushes(ctx, rd)
	if err != nil {
		return pushes{}, err
	}
	if environment == "" {
		environment = fleets
	}
	p, known := all[environment]
	switch {
	case environment == "":
		return pushes{}, tutti.Errorf(tutti.CodeNotFound, "the fleet file has no environment: the code is on the Puppet Server")
	case !known:
		return pushes{}, tutti.Errorf(tutti.CodeNotFound, "no code was pushed for environment %q; push it with: tutti code push", environment)
	}
	return *p, nil
}

// allPushes reads the pushes of all environments. It leaves out retired codes. The second result is the environment of the
// fleet file.
func allPushes(ctx context.Context, rd *Reader) (map[string]*pushes, string, error) {
	out, fleets := map[string]*pushes{}, ""
	if err := rd.look(ctx, func(v View) error {
		fleets = v.Fleet().Environment.Name
		for environment, now := range v.Registry.Code {
			out[environment] = &pushes{now: now}
		}
		return nil
	}); err != nil {
		return nil, "", err
	}
	for e, err := range rd.past.History(ctx, 0) {
		if err != nil {
			return nil, "", tutti.Wrap("", err, "read the log")
		}
		switch b := e.Body.(type) {
		case *tutti.CodePushed:
			if p := out[b.Environment]; p != nil {
				p.log = append(p.log, e)
			}
		case *tutti.CodeRetired:
			if p := out[b.Environment]; p != nil {
				p.log = slices.DeleteFunc(p.log, func(e tutti.Event) bool { return b.Retires(e.Body.(*tutti.CodePushed).Code) })
			}
		}
	}
	return out, fleets, nil
}

// The method `last` returns the last push of a code. The method returns nil if the log has no push of this code.
func (p pushes) last(code tutti.Digest) *tutti.Event {
	for i, e := range slices.Backward(p.log) {
		if e.Body.(*tutti.CodePushed).Code == code {
			return &p.log[i]
		}
	}
	return nil
}

// The method `before` returns the code of the previous push. While the latest push is held, the result is the code
// that nodes still use. If the code of the previous push is not known, the method returns an empty digest.
func (p pushes) before() tutti.Digest {
	if p.now.Held && p.now.Released != "" {
		return p.now.Released
	}
	now := false
	for _, e := range slices.Backward(p.log) {
		code := e.Body.(*tutti.CodePushed).Code
		if now && code != p.now.Code {
			return code
		}
		now = now || code == p.now.Code
	}
	return ""
}

// The method `version` returns who last pushed a code, and when.
func (p pushes) version(code tutti.Digest) api.CodeVersion {
	out := api.CodeVersion{Code: code}
	if e := p.last(code); e != nil {
		b := e.Body.(*tutti.CodePushed)
		out.At, out.By, out.Files, out.Bytes, out.Source = e.At, e.By, b.Files, b.Bytes, b.Source
	}
	return out
}

// The method `manifest` reads the list of files of a code.
func (rd *Reader) manifest(ctx context.Context, p pushes, code tutti.Digest) (tutti.CodeManifest, error) {
	var manifest tutti.CodeManifest
	signed, err := signedOf(ctx, rd, p, code)
	if err != nil {
		return manifest, err
	}
	err = json.Unmarshal(signed.Manifest, &manifest)
	return manifest, tutti.Wrap(tutti.CodeDamaged, err, "the list of the files of %.19s", code)
}

// signedOf reads the signed list of files of a code.
func signedOf(ctx context.Context, rd *Reader, p pushes, code tutti.Digest) (tutti.SignedCode, error) {
	var signed tutti.SignedCode
	e := p.last(code)
	if e == nil {
		return signed, tutti.Errorf(tutti.CodeNotFound, "the list of the files of %.19s is not kept any more", code)
	}
	raw, err := rd.blobs.Get(ctx, e.Body.(*tutti.CodePushed).Signed)
	if err == nil {
		err = tutti.Wrap(tutti.CodeDamaged, json.Unmarshal(raw, &signed), "signed code")
	}
	return signed, tutti.Wrap("", err, "the list of the files of %.19s", code)
}

// The method `changes` returns the files that differ between a code and the latest push, sorted by path.
func (rd *Reader) changes(ctx context.Context, p pushes, before tutti.Digest) ([]api.CodeChange, error) {
	old, err := rd.manifest(ctx, p, before)
	if err != nil {
		return nil, err
	}
	now, err := rd.manifest(ctx, p, p.now.Code)
	if err != nil {
		return nil, err
	}
	return api.ChangesOf(old.Files, now.Files), nil
}

// The method `having` returns how many nodes had a code in their last run in mode apply. The method also returns
// the other nodes of the environment.
func (v View) having(environment string, code tutti.Digest) (have int, others []tutti.NodeName) {
	for n := range v.Registry.Nodes {
		has, last := v.has(n), v.Engine.Last(n).Applied
		switch {
		case has.Program == tutti.ProgramAgent:
		case last != nil && last.Code == code && (last.Result == nil || last.Result.Reason != tutti.BecauseRefused):
			have++
		case has.Environment == environment:
			others = append(others, n)
		}
	}
	slices.Sort(others)
	return have, others
}
