package classify_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/classify"
)

// TestScalarsAreReadAsByRuby compares the values of parameters with those that Ruby reads in Puppet's `node_terminus = exec`.
// Where Ruby reads a date or another object, the answer is refused.
func TestScalarsAreReadAsByRuby(t *testing.T) {
	texts := strings.Split(`yes no on off Yes NO true False ~ null Null nil y n 0 1 -1 +7 007 08 0o17 0b101 0x1F 1_000 1,000 1e3 12e4 1.5e3 1.5e+3 1.0 -2.50 .5 5. . -. + - : :foo :"foo" 1.2.3 1.2.3.4 1-2
10:20:30 1:30 1:30:00 2001-01-01 2001-01-01T00:00:00Z .inf -.INF .nan 9223372036854775807 9223372036854775808 'no' "1" '12e4' !!str&nbsp;5 a&nbsp;b <<a = << 1_ _1 0_7 -0x10 abc@x /path/to %x`, " ")
	script := `require 'yaml'; require 'json'
puts JSON.generate(JSON.parse($stdin.read).map { |text|
  begin
    value = YAML.safe_load("parameters:\n  x: #{text}\n", permitted_classes: [Symbol])['parameters']['x']
    case value when Symbol then value.to_s when Float then (value.finite? ? value : 'refused') when Integer then (value.bit_length < 64 ? value : 'refused') else value end
  rescue StandardError, SyntaxError
    'refused'
  end })`
	for i, text := range texts {
		texts[i] = strings.ReplaceAll(strings.TrimSpace(text), "&nbsp;", " ")
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ruby", "-e", script)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []json.RawMessage
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		answer, err := classify.Parse(fmt.Appendf(nil, "parameters:\n  x: %s\n", text))
		got := string(answer.Parameters["x"])
		if err != nil {
			got = `"refused"`
		}
		var a, b any
		if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal(want[i], &b) != nil || a != b && (got != `"refused"` || !strings.Contains(text, ":")) {
			t.Errorf("%s: %s, Ruby reads %s (%v)", text, got, want[i], err)
		}
		if _, is := b.(float64); is && err == nil && strings.ContainsAny(string(want[i]), ".e") != strings.ContainsAny(got, ".e") {
			t.Errorf("%s: %s, Ruby reads %s: one is an Integer, and one is a Float", text, got, want[i])
		}
	}
}
