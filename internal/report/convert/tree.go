// Package convert makes, from the report of a run, what other systems accept: a command of PuppetDB, a report of
// Foreman, Puppet's YAML, or Puppet's report hash in JSON. The package is pure.
//
// A node may lie in its report. So the name of the node always comes from the caller. If an event is marked as
// redacted, its values are removed.
package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/report"
)

// Max is the largest report that is converted, in bytes. A larger report is sent without its messages.
const Max = 8 << 20

// Of is what the caller knows about a report.
type Of struct {
	Node tutti.NodeName
	// At is when the server stored the report. The result depends on nothing else, so the same report gives the same
	// bytes each time.
	At       time.Time
	Producer string // name of the machine that sends the report
}

// object is a JSON object that keeps the order of its members.
type object []member

type member struct {
	name  string
	value any // nil, bool, string, json.Number, list or object
}

type list []any

// The method `get` returns a member, or nil.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// The method `set` replaces a member. It adds the member if the object has none of this name.
func (o *object) set(name string, value any) {
	for i, m := range *o {
		if m.name == name {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{name, value})
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		for _, v := range []any{m.name, m.value} {
			raw, err := encode(v)
			if err != nil {
				return nil, err
			}
			out.Write(raw)
			out.WriteByte(':')
		}
		out.Truncate(out.Len() - 1)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// The function `encode` writes JSON without the escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// The function `decode` reads a JSON value. The depth of JSON is limited by the decoder.
func decode(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := object{}
		seen := map[string]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string) // the decoder allows only a string here
			value, err := decode(d)
			if err != nil {
				return nil, err
			}
			if seen[name] {
				return nil, tutti.Errorf(tutti.CodeInvalid, "%q is there twice", tutti.Plain(name, 100))
			}
			seen[name] = true
			o = append(o, member{name, value})
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		l := list{}
		for d.More() {
			value, err := decode(d)
			if err != nil {
				return nil, err
			}
			l = append(l, value)
		}
		_, err := d.Token()
		return l, err
	}
	return t, nil
}

// The function `read` reads a report, puts the node's name into it, and removes the values of redacted events.
func read(raw []byte, of Of) (object, error) {
	raw, err := report.Keep(bytes.NewReader(raw), int64(len(raw)), Max)
	if err != nil {
		return nil, err
	}
	if !json.Valid(raw) { // this also limits the depth
		return nil, errors.New("this is no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decode(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the end of the report")
	}
	r, is := v.(object)
	if !is {
		return nil, errors.New("it is no object")
	}
	r.set("host", string(of.Node))
	return r, redact(r)
}

// redacted matches the messages that Puppet writes about Sensitive values.
var redacted = regexp.MustCompile(`^(changed \[redacted\] to \[redacted\]|current_value \[redacted\], should be \[redacted\] \(noop\))( \(corrective\))?$`)

// The function `redact` removes the values of all events that are marked as redacted. Puppet has replaced most of them
// already, but some types write them.
func redact(r object) error {
	for _, st := range objects(r.get("resource_statuses")) {
		events, _ := st.get("events").(list)
		for i, v := range events {
			e, is := v.(object)
			if !is {
				return errors.New("an event is no object")
			}
			if e.get("redacted") != true {
				continue
			}
			for _, name := range []string{"previous_value", "desired_value"} {
				if old := e.get(name); old != nil && old != "" {
					e.set(name, api.Redacted)
				}
			}
			// a failed event's message is the only place with the reason
			if message, _ := e.get("message").(string); e.get("status") != "failure" && !redacted.MatchString(message) {
				e.set("message", api.Redacted)
			}
			events[i] = e
		}
	}
	return nil
}

// The function `objects` returns the objects in an object or in a list.
func objects(v any) []object {
	var out []object
	add := func(v any) {
		if o, is := v.(object); is {
			out = append(out, o)
		}
	}
	switch v := v.(type) {
	case object:
		for _, m := range v {
			add(m.value)
		}
	case list:
		for _, one := range v {
			add(one)
		}
	}
	return out
}

func invalid(err error) error {
	return tutti.Wrap(tutti.CodeInvalid, err, "this is no report of Puppet that can be sent")
}
