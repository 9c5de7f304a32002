package wire

import (
	"bytes"
	"encoding/json"

	"github.com/tutti-project/tutti"
)

// EncodeForeign returns the message of OpForeign, which contains the run and its report.
func EncodeForeign(f tutti.Foreign, report []byte) ([]byte, error) {
	head, err := json.Marshal(f)
	return append(append(head, '\n'), report...), err
}

// DecodeForeign decodes a message of EncodeForeign. The report shares memory with the message. The
// error is CodeInvalid if the message has another form. The error is CodeConflict if the report is
// cut off. The node must then send the message again.
func DecodeForeign(message []byte) (tutti.Foreign, []byte, error) {
	head, report, _ := bytes.Cut(message, []byte("\n"))
	var f tutti.Foreign
	if err := json.Unmarshal(head, &f); err != nil {
		return f, nil, tutti.Wrap(tutti.CodeInvalid, err, "message %q", OpForeign)
	}
	if err := f.Validate(); err != nil {
		return f, nil, err
	}
	if f.Result.Report == "" && len(report) == 0 { // a local run may come without a report
		return f, nil, nil
	}
	if tutti.DigestOf(report) != f.Result.Report {
		return f, nil, tutti.Errorf(tutti.CodeConflict, "foreign run %s: the report in the message is not the report that the run names; send it again", f.Result.Run)
	}
	return f, report, nil
}
