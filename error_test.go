package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
)

func TestCodes(t *testing.T) {
	refused := tutti.Errorf(tutti.CodeRefused, "no grant for %q", "x")
	cases := map[string]struct {
		reason string
		err    error
		code   tutti.Code
		text   string
	}{
		"none":          {"no error has no code", nil, "", ""},
		"plain":         {"an error that nobody has classified is our mistake", io.EOF, tutti.CodeInternal, "EOF"},
		"made":          {"", refused, tutti.CodeRefused, `no grant for "x"`},
		"wrapped by us": {"the outermost code counts", tutti.Wrap(tutti.CodeInvalid, refused, "line 3"), tutti.CodeInvalid, `line 3: no grant for "x"`},
		"kept":          {"no code of its own keeps the inner one", tutti.Wrap("", refused, "line 3"), tutti.CodeRefused, `line 3: no grant for "x"`},
		"by fmt":        {"%w keeps it, too", fmt.Errorf("ask: %w", refused), tutti.CodeRefused, `ask: no grant for "x"`},
		"nil wrapped":   {"wrapping no error makes none", tutti.Wrap(tutti.CodeInvalid, nil, "line 3"), "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := ""
			if tc.err != nil {
				text = tc.err.Error()
			}
			if got := tutti.CodeOf(tc.err); got != tc.code || text != tc.text {
				t.Errorf("%s: code %q, text %q; want %q, %q", tc.reason, got, text, tc.code, tc.text)
			}
		})
	}
	if err := tutti.Wrap(tutti.CodeUnavailable, io.EOF, "x"); !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
}

func TestActor(t *testing.T) {
	if got := tutti.Actor(context.Background()); got != "operator:unknown" {
		t.Errorf("nobody said who asks: %q", got)
	}
	if got := tutti.Actor(tutti.WithActor(context.Background(), "operator:ada")); got != "operator:ada" {
		t.Errorf("actor %q", got)
	}
}

func TestAnErrorIsBoundedHoweverMuchItQuotes(t *testing.T) {
	long := strings.Repeat("ä", tutti.MaxErrorText)
	for _, err := range []error{tutti.NodeName(long).Validate(), tutti.Wrap("", tutti.Errorf(tutti.CodeInvalid, "%s", long), "a%s", long)} {
		text := err.Error()
		if len(text) > tutti.MaxErrorText || !strings.HasSuffix(text, "…") || !utf8.ValidString(text) || tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%d bytes, code %q: %.80q", len(text), tutti.CodeOf(err), text)
		}
	}
}
