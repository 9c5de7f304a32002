package tutti_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

func TestNames(t *testing.T) {
	node := func(s string) error { return tutti.NodeName(s).Validate() }
	word := func(s string) error { return tutti.GroupName(s).Validate() }
	key := func(s string) error { return tutti.NodeKey(s).Validate() }
	run := func(s string) error { return tutti.RunID(s).Validate() }
	digest := func(s string) error { return tutti.Digest(s).Validate() }
	cases := map[string]struct {
		check     func(string) error
		good, bad []string
	}{
		"node": {node,
			[]string{"web", "web-01.example.net", "a_b", "_x", "0", strings.Repeat("a", 253)},
			[]string{"", "Web", "web 1", "web*", "a/b", "a..b", ".a", "-a", "ä", "a\n", strings.Repeat("a", 254)}},
		"word": {word,
			[]string{"db", "db-1", "db_1", "1"},
			[]string{"", "Db", "a.b", "-a", "a b", strings.Repeat("a", 64)}},
		"node key": {key,
			[]string{"U" + strings.Repeat("A", 55)},
			[]string{"", "U", "A" + strings.Repeat("A", 55), "U" + strings.Repeat("a", 55), "U" + strings.Repeat("A", 54) + ">"}},
		"run": {run,
			[]string{"01234567-89ab-cdef-0123-456789abcdef"},
			[]string{"", "01234567-89AB-cdef-0123-456789abcdef", "../../etc", "01234567-89ab-cdef-0123-456789abcdef\n"}},
		"digest": {digest,
			[]string{"sha256:" + strings.Repeat("0a", 32)},
			[]string{"", strings.Repeat("0a", 32), "sha256:" + strings.Repeat("0A", 32), "sha256:../x", "md5:" + strings.Repeat("0a", 32)}},
		"value key": {tutti.ValidateKey,
			[]string{"a", "shared/hiera/a::b", "node/web.example.net/x_1-y", "..."},
			[]string{"", "/", "/a", "a/", "a//b", "a/../b", ".", "a/.", "a b", "a*", "ä", strings.Repeat("a", 513)}},
		"plan": {func(s string) error { return tutti.PlanName(s).Validate() }, []string{"deploy"}, []string{"De"}},
		"step": {func(s string) error { return tutti.StepName(s).Validate() }, []string{"db-2"}, []string{"a.b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range tc.good {
				if err := tc.check(s); err != nil {
					t.Errorf("%q is refused: %v", s, err)
				}
			}
			for _, s := range tc.bad {
				if err := tc.check(s); tutti.CodeOf(err) != tutti.CodeInvalid {
					t.Errorf("%q: %v, want it invalid", s, err)
				}
			}
		})
	}
}

func TestDigestOf(t *testing.T) {
	d := tutti.DigestOf(nil)
	if want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"; d.Hex() != want || d.Validate() != nil {
		t.Errorf("digest of nothing %s, want sha256:%s", d, want)
	}
}
