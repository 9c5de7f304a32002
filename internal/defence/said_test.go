package main

import "testing"

func TestWhatATestSaid(t *testing.T) {
	for _, tc := range []struct{ reason, out, want string }{
		{"its first line", "--- FAIL: TestX (0.00s)\n    x_test.go:3: first\n    x_test.go:4: second\nFAIL\n", "`first`"},
		{"of a difference, what differs", "    x_test.go:3: log -want +got\n          []string{\n        - \t\"a\",\n          }\n", "`log -want +got -\"a\",`"},
		{"a panic", "panic: nobody catches it\n", "`panic: nobody catches it`"},
		{"a build that failed is no proof", "    x_test.go:3: first\nFAIL x [build failed]\n", ""},
		{"nor is silence", "FAIL\n", ""},
	} {
		if got := complaint(tc.out); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}

func TestWhatAnExampleSaid(t *testing.T) {
	for _, tc := range []struct{ reason, out, want string }{
		{"what was expected", "Failures:\n\n  1) X y\n     Failure/Error: expect(1).to eq(2)\n\n       expected: 2\n            got: 1\n", "`expected: 2`"},
		{"below an expectation of several lines", "     Failure/Error:\n       expect(1)\n         .to eq(2)\n\n       expected: 2\n", "`expected: 2`"},
		{"with what the run said, the expectation", "     Failure/Error: expect(a).to eq(2), run.said\n\n       == phase.jsonl\n       {}\n", "`expect(a).to eq(2), run.said`"},
		{"an error", "  1) X y\n     Failure/Error: @socket.write(line)\n\n     Timeout::Error:\n       execution expired\n", "`Timeout::Error:`"},
		{"a file that does not load is no proof", "An error occurred while loading ./spec/x_spec.rb.\n0 examples, 0 failures, 1 error\n", ""},
		{"nor is silence", "1 example, 0 failures\n", ""},
	} {
		if got := objection(tc.out); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}
