package main

import (
	"strings"
	"testing"
)

// TestTryAll checks that a row passes if its test fails without the defence and passes with the
// defence. All other rows fail.
func TestTryAll(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module example.net/x\n\ngo 1.21\n")
	write(t, "x.go", "package x\n\nfunc Double(n int) int { return 2 * n }\n")
	write(t, "x_test.go", `package x

import "testing"

func TestSees(t *testing.T) {
	if Double(2) != 4 {
		t.Error("two is not doubled")
	}
}

func TestSeesNothing(t *testing.T) { Double(2) }

func TestIsRed(t *testing.T) { t.Error("always") }
`)
	d := defence{Promise: "doubles", Out: "the factor", File: "x.go", Edits: []edit{{Old: "2 * n", New: "n"}}, Package: "."}
	var rows []defence
	for _, test := range []string{"TestSees$", "TestSeesNothing", "TestIsRed"} {
		d.Test = test
		rows = append(rows, d)
	}
	var out strings.Builder
	err := tryAll(t.Context(), &out, rows)
	if err == nil {
		t.Error("no error")
	}
	for _, want := range []string{
		"| doubles | the factor | `TestSees$` . | `two is not doubled` | `ok` |\n",
		"FAILED doubles (TestSeesNothing of ): the test passes without the defence\n",
		"FAILED doubles (TestIsRed of ): the test fails with the defence:\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not said: %q", want)
		}
	}
	if !strings.HasSuffix(out.String(), "\n1 passed, 2 failed\n") {
		t.Errorf("no counts at the end")
	}
	t.Log(out.String())
}
