package selector_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/selector"
)

// TestVersionsHavePuppetsOrder compares the order with the file versioncmp.txt. Each line of the file has two versions
// and the result of Puppet::Util::Package.versioncmp of Puppet 7.23.
func TestVersionsHavePuppetsOrder(t *testing.T) {
	raw, err := os.ReadFile("testdata/versioncmp.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 24*24 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		f := strings.Fields(line)
		if got := strconv.Itoa(selector.CompareVersions(f[0], f[1])); got != f[2] {
			t.Errorf("%s and %s: %s, want %s", f[0], f[1], got, f[2])
		}
	}
}

func TestRows(t *testing.T) {
	row := map[string]any{
		"type": "Package", "title": "nginx", "line": int64(3), "parameters": map[string]any{"ensure": "1.22.1-9+deb12u1", "noop": true},
	}
	for text, want := range map[string]string{
		"":                                                                         "true",
		`resource.type == "Package"`:                                               "true",
		`resource.title == "apache"`:                                               "false",
		`resource.line == 3.0`:                                                     "true",
		`has(resource.parameters.password)`:                                        "because it may be a secret: password",
		`!has(resource.parameters.password)`:                                       "because it may be a secret: password",
		`"password" in resource.parameters`:                                        "because it may be a secret: password",
		`resource.parameters.exists(k, k == "password")`:                           "because it may be a secret: password",
		`resource.parameters.?password.orValue("") == "x"`:                         "because it may be a secret: password",
		`size(resource.parameters) == 2`:                                           "because it may be a secret: password",
		`resource.type == "File" && has(resource.parameters.password)`:             "false",
		`has(resource.parameters.ensure)`:                                          "true",
		`resource.parameters.noop`:                                                 "true",
		`resource.parameters.ensure`:                                               "--where is a string; it has to be true or false for a row",
		`resource.parameters.noop == true`:                                         "true",
		`node.startsWith("web-")`:                                                  "true",
		`"db" in groups`:                                                           "false",
		`resource["title"] == "nginx"`:                                             "true",
		`has(resource.parameters.name)`:                                            "false",
		`olderThan(resource.parameters.ensure, "1.24")`:                            "true",
		`olderThan(resource.parameters.ensure, "1.22.1-9")`:                        "false",
		`olderThan(resource.parameters.ensure, "installed")`:                       `olderThan: "installed" is no version`,
		`resource.parameters.name == "x"`:                                          "no such key: name; if not all rows have it, check for it first: has(resource.NAME) && …",
		`resource.type == "File" && resource.parameters.mode == "0600"`:            "false",
		`resource.type == "Package" && olderThan(resource.parameters.ensure, "2")`: "true",
		`resource.type`:                                                            "has to be true or false for a row",
		`facts.os == "x"`:                                                          "undeclared reference to 'facts'",
		`resource.type == `:                                                        "Syntax error",
		`[1,2].all(x, x > 0) &&` + strings.Repeat(" ", selector.MaxText):           "bytes, at most",
	} {
		r, err := selector.ParseRow("resource", text)
		got := ""
		if err == nil {
			var yes bool
			yes, err = r.Holds(web, row, []string{"password"}, now)
			got = strconv.FormatBool(yes)
		}
		if err != nil {
			got = err.Error()
		}
		exact := want == "true" || want == "false"
		if exact && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
