package tutti

import (
	"bytes"
	"encoding/json"
)

// Foreign is a run that Tutti did not start, as its node tells it: judged by the
// report that Puppet has left. Result.Run is the transaction's uuid.
type Foreign struct {
	Result      Result `json:"result"`
	Environment string `json:"environment,omitempty"`
	Puppet      string `json:"puppet,omitempty"`
	Noop        bool   `json:"noop,omitempty"`
	// Whole: it certainly applied all of a new catalog of the node's Puppet Server, for
	// the node's own environment (ADR 0011).
	Whole bool `json:"whole,omitempty"`
}

// KeptForeign is how many foreign runs of a node are kept: the latest by their start.
const KeptForeign = 5

// Disturbs reports whether the run may have changed what other runs have made.
func (f Foreign) Disturbs() bool {
	return !f.Noop && (f.Result.Counts.Changed > 0 || f.Result.Counts.Failed > 0)
}

// Validate checks what a node may claim about a foreign run.
func (f Foreign) Validate() error {
	r := f.Result
	if err := r.Validate(); err != nil {
		return err
	}
	switch {
	case r.Stopped || len(r.Waits) > 0 || r.Log != "" || r.Record != "" || r.Report == "":
		return Errorf(CodeInvalid, "foreign run %s: it has a gate, a log or a record, or no report", r.Run)
	case r.Outcome != Unchanged && r.Outcome != Changed && r.Outcome != Failed:
		return Errorf(CodeInvalid, "foreign run %s: outcome %q", r.Run, string(r.Outcome))
	}
	return nil
}

// EncodeForeign returns the message OpForeign: the run, and its report.
func EncodeForeign(f Foreign, report []byte) ([]byte, error) {
	head, err := json.Marshal(f)
	return append(append(head, '\n'), report...), err
}

// DecodeForeign reads what EncodeForeign wrote; the report shares memory with the
// message. CodeInvalid: it is something else. CodeConflict: the report is cut off, and
// to be sent again.
func DecodeForeign(message []byte) (Foreign, []byte, error) {
	head, report, _ := bytes.Cut(message, []byte("\n"))
	var f Foreign
	if err := json.Unmarshal(head, &f); err != nil {
		return f, nil, Wrap(CodeInvalid, err, "message %q", OpForeign)
	}
	if err := f.Validate(); err != nil {
		return f, nil, err
	}
	if DigestOf(report) != f.Result.Report {
		return f, nil, Errorf(CodeConflict, "foreign run %s: the report is not the one that it names; send it again", f.Result.Run)
	}
	return f, report, nil
}
