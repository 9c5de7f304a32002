package tutti_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

func TestPlain(t *testing.T) {
	for _, tc := range []struct{ reason, text, want string }{
		{"a text is as it was", "a\tb\nç…", "a\tb\nç…"},
		{"escape sequences of terminals are none any more", "\x1b[31mred\x07\x9b\u009b1m\x7f", "\uFFFD[31mred\uFFFD\uFFFD\uFFFD1m\uFFFD"},
		{"what is shown is what is there", "a\u202etxt.exe\u2066", "a\uFFFDtxt.exe\uFFFD"},
		{"no bytes that are not UTF-8", "a\xff", "a\uFFFD"},
		{"it is cut", strings.Repeat("a", 101), strings.Repeat("a", 97) + "…"},
		{"the cut parts no rune", strings.Repeat("a", 96) + "ççç", strings.Repeat("a", 96) + "…"},
		{"it is cut when what is hidden was replaced by more bytes", strings.Repeat("\x7f", 100), strings.Repeat("\uFFFD", 32) + "…"},
		{"and is not longer when what is cut off is a part of a rune", strings.Repeat("ç", 51), strings.Repeat("ç", 48) + "…"},
	} {
		if got := tutti.Plain(tc.text, 100); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestWhatARunSays(t *testing.T) {
	const cycle = "Found 1 dependency cycle:\n(Exec[a] => Exec[b] => Exec[a])\\nTry it"
	site := tutti.Failure{File: "/srv/environments/production/manifests/site.pp", Line: 3, Message: "Syntax error at 'ensure'"}
	placed := tutti.Failure{File: site.File, Line: 3, Column: 9, Message: "no"}
	served := tutti.Failure{File: "/c/site.pp", Line: 4, Column: 9, Message: "Error 500: no (file: /c/site.pp, line: 4, column: 9) on node n"}
	for _, tc := range []struct {
		reason string
		result tutti.Result
		want   string
	}{
		{"the place is in the failure", tutti.Result{Message: site.Message, Failures: []tutti.Failure{site}}, "Syntax error at 'ensure' (manifests/site.pp:3)"},
		{"with its column", tutti.Result{Message: placed.Message, Failures: []tutti.Failure{placed}}, "no (manifests/site.pp:3:9)"},
		{"a Puppet Server says the place, too", tutti.Result{Message: served.Message, Failures: []tutti.Failure{served}}, "Error 500: no on node n (/c/site.pp:4:9)"},
		{"the failures are others", tutti.Result{Message: "ended after 1h", Failures: []tutti.Failure{site}}, "ended after 1h"},
		{"a cycle", tutti.Result{Message: cycle}, "Found 1 dependency cycle: (Exec[a] => Exec[b] => Exec[a]) Try it"},
		{"another backslash stays", tutti.Result{Message: `C:\new`}, `C:\new`},
		{"nothing", tutti.Result{}, ""},
	} {
		if got := tc.result.Says(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}
