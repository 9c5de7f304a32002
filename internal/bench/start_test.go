package main

import (
	"io"
	"strings"
	"testing"
)

// datagrams returns one datagram for each Read, and io.EOF after the last one.
type datagrams []string

func (d *datagrams) Read(p []byte) (int, error) {
	if len(*d) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*d)[0])
	*d = (*d)[1:]
	return n, nil
}

func TestAwaitReady(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		said   datagrams
		want   string // want is a part of the error. want is empty if the agent is ready.
	}{
		"AtOnce": {
			reason: "An agent whose server is away is ready, and connects later.",
			said:   datagrams{"READY=1"},
		},
		"ConnectedFirst": {
			reason: "An agent that is connected at once says so before it is ready.",
			said:   datagrams{"STATUS=Connected to the server as node web-01", "READY=1"},
		},
		"SeveralLines": {
			reason: "A datagram has several lines, in any order.",
			said:   datagrams{"STATUS=\nREADY=1"},
		},
		"Never": {
			reason: "The error tells what the agent said; a status is no readiness.",
			said:   datagrams{"STATUS=Not admitted: READY=1 comes later"},
			want:   "Not admitted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := awaitReady(&tt.said)
			if tt.want == "" && err != nil {
				t.Errorf("%s\ngot %v", tt.reason, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s\ngot %v, want an error with %q", tt.reason, err, tt.want)
			}
		})
	}
}
