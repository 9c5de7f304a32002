package explain

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `histories` has the methods of a Reader about the earlier code of environments.
type histories struct{ rd *Reader }

// ListCode implements tutti.CodeHistory.
func (h histories) ListCode(ctx context.Context, in api.CodeQuery) ([]api.CodeEntry, error) {
	all, _, err := allPushes(ctx, h.rd)
	if err != nil {
		return nil, err
	}
	if in.Environment != "" && all[in.Environment] == nil {
		return nil, tutti.Errorf(tutti.CodeNotFound, "no code was pushed for environment %q; there is code of: %s", in.Environment, known(all))
	}
	out := []api.CodeEntry{}
	for _, environment := range slices.Sorted(maps.Keys(all)) {
		if in.Environment == "" || in.Environment == environment {
			out = append(out, all[environment].entries()...)
		}
	}
	return out, h.rd.look(ctx, func(v View) error {
		for i := range out {
			out[i].Nodes, _ = v.having("", out[i].Code)
		}
		return nil
	})
}

func known(all map[string]*pushes) string {
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(all)), ", "), "none")
}

// The method `entries` returns the codes of an environment, the latest push first. Each code is there once.
func (p pushes) entries() []api.CodeEntry {
	out := []api.CodeEntry{p.entry(p.now.Code)}
	for _, e := range slices.Backward(p.log) {
		code := e.Body.(*tutti.CodePushed).Code
		if !slices.ContainsFunc(out, func(o api.CodeEntry) bool { return o.Code == code }) {
			out = append(out, p.entry(code))
		}
	}
	return out
}

// The method `entry` returns one code of an environment, without the number of nodes.
func (p pushes) entry(code tutti.Digest) api.CodeEntry {
	out := api.CodeEntry{Environment: p.now.Environment, CodeVersion: p.version(code)}
	if e := p.last(code); e != nil {
		out.Counter = e.Body.(*tutti.CodePushed).Counter
	}
	switch {
	case code == p.now.Code && p.now.Held:
		out.State = api.CodeHeld
	case code == p.now.Code:
		out.State, out.Counter = api.CodeCurrent, p.now.Counter
	case code == p.now.Goes():
		out.State = api.CodeReleased
	}
	return out
}

// GetCode implements tutti.CodeHistory.
func (h histories) GetCode(ctx context.Context, in api.CodeQuery) (api.CodeKept, error) {
	p, code, err := h.which(ctx, in)
	if err != nil {
		return api.CodeKept{}, err
	}
	out := api.CodeKept{CodeEntry: p.entry(code)}
	if out.SignedCode, err = signedOf(ctx, h.rd, p, code); err != nil {
		return out, err
	}
	out.Statement = p.last(code).Body.(*tutti.CodePushed).Statement
	return out, h.rd.look(ctx, func(v View) error {
		if st, is := v.Registry.Statements[code]; is { // a rotation of the key may have signed the code again
			out.Statement = &st
		}
		return nil
	})
}

// beginRE matches the beginning of a digest.
var beginRE = regexp.MustCompile(`^[0-9a-f]*$`)

// The method `which` finds the code that a query names.
func (h histories) which(ctx context.Context, in api.CodeQuery) (pushes, tutti.Digest, error) {
	if in.Code == "" {
		p, err := h.rd.pushes(ctx, in.Environment)
		if err != nil || !in.Before {
			return p, p.now.Code, err
		}
		before := p.before()
		if before == "" {
			err = tutti.Errorf(tutti.CodeNotFound, "the log has no code of environment %s before %.19s", p.now.Environment, p.now.Code)
		}
		return p, before, err
	}
	begin := strings.TrimPrefix(in.Code, "sha256:")
	if len(begin) < api.MinDigest || !beginRE.MatchString(begin) {
		return pushes{}, "", tutti.Errorf(tutti.CodeInvalid, "%.80q is no code: give at least %d hexadecimal digits of a digest in: tutti code list", in.Code, api.MinDigest)
	}
	all, _, err := allPushes(ctx, h.rd)
	if err != nil {
		return pushes{}, "", err
	}
	var of pushes
	var found tutti.Digest
	for environment, p := range all {
		if in.Environment != "" && in.Environment != environment {
			continue
		}
		for _, e := range p.entries() {
			switch {
			case !strings.HasPrefix(e.Code.Hex(), begin) || e.Code == found:
			case found != "":
				return pushes{}, "", tutti.Errorf(tutti.CodeInvalid, "%s is the beginning of more than one code: give more digits", in.Code)
			default:
				of, found = *p, e.Code
			}
		}
	}
	if found == "" {
		return pushes{}, "", tutti.Errorf(tutti.CodeNotFound, "no code %s is kept; see: tutti code list", in.Code)
	}
	return of, found, nil
}
