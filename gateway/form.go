// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strings"

	"github.com/munnerz/goautoneg"
)

const typeJSON = "application/json"

// form is how a client wants its answer: whole objects, their metadata, or a table.
type form struct {
	// accept is the header with which servers are asked for this form, as JSON. So answers can be merged. Clients that
	// would rather have protobuf take JSON too.
	accept string
	// as is the kind of the answer, empty for the objects as they are.
	as    string
	table bool
}

const (
	asTable        = "Table"
	asMetadata     = "PartialObjectMetadata"
	asMetadataList = "PartialObjectMetadataList"
)

// ofList is the form in which a list is asked for whose objects a watch shows in this form.
func (f form) ofList() string {
	if f.as != asMetadata {
		return f.accept
	}
	return strings.Replace(f.accept, asMetadata, asMetadataList, 1)
}

// items is the field of an answer in this form that has what is listed.
func (f form) items() string {
	if f.table {
		return fieldRows
	}
	return fieldItems
}

// formOf returns the form that an Accept header asks for first. ok is false if the client takes no JSON.
func formOf(accept string) (f form, ok bool) {
	if accept == "" {
		return form{accept: typeJSON}, true
	}
	var first *goautoneg.Accept
	for _, clause := range goautoneg.ParseAccept(accept) {
		json := clause.Type == "*" || clause.Type == "application" && (clause.SubType == "*" || clause.SubType == "json")
		ok = ok || json
		if first == nil && (json || clause.Type == "application" && clause.SubType == "vnd.kubernetes.protobuf") {
			first = &clause
		}
	}
	if !ok {
		return form{}, false
	}
	f.accept, f.as = typeJSON, first.Params["as"]
	f.table = f.as == asTable
	for _, param := range []string{"as", "v", "g"} {
		if value := first.Params[param]; value != "" && !strings.ContainsFunc(value, unsafeInHeader) {
			f.accept += ";" + param + "=" + value
		}
	}
	return f, true
}

// unsafeInHeader is true for what cannot be a part of a parameter without quotes.
func unsafeInHeader(c rune) bool {
	return c != '.' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}
