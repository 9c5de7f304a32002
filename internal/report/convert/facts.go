package convert

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"

	"github.com/tutti-project/tutti"
)

// packages is a fact of Puppet's agent with the installed packages. PuppetDB wants them beside the facts.
const packages = "_puppet_inventory_1"

// PuppetDBFacts returns the content of PuppetDB's command `replace facts`, version 5. The argument zipped is a JSON
// object of facts in gzip.
func PuppetDBFacts(zipped []byte, environment string, of Of) ([]byte, error) {
	if environment == "" {
		return nil, invalid(errors.New("the facts have no environment"))
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, invalid(err)
	}
	raw, err := io.ReadAll(io.LimitReader(unzipped, tutti.MaxFactsJSON+1))
	switch {
	case err != nil:
		return nil, invalid(err)
	case len(raw) > tutti.MaxFactsJSON:
		return nil, invalid(errors.New("the facts are too large"))
	case !json.Valid(raw): // this also limits the depth
		return nil, invalid(errors.New("the facts are no JSON"))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decode(d)
	if err != nil {
		return nil, invalid(err)
	}
	facts, is := v.(object)
	if !is {
		return nil, invalid(errors.New("the facts are no object"))
	}
	command := object{
		{"certname", string(of.Node)}, {"environment", environment}, {"producer_timestamp", wireTime(of.At)}, {"producer", of.Producer},
	}
	values := object{}
	for _, fact := range facts {
		if fact.name != packages {
			values = append(values, fact)
			continue
		}
		if inventory, is := fact.value.(object); is && inventory.get("packages") != nil {
			command.set("package_inventory", inventory.get("packages"))
		}
	}
	command.set("values", values)
	out, err := encode(command)
	return out, invalid(err)
}
