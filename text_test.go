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
		{"a rune that the cut has parted", strings.Repeat("a", 96) + "ççç", strings.Repeat("a", 96) + "\uFFFD…"},
	} {
		if got := tutti.Plain(tc.text, 100); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}
