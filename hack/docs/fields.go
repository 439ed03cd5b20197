// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/trainyard/trainyard/config"
)

// fieldsOf returns a function that makes the table of the fields of a kind's spec. What a row says comes from the CRD,
// which has the comments of the Go type. The order of the rows is that of the Go type.
func fieldsOf(plural string, spec any) func() (string, error) {
	return func() (string, error) {
		schema, err := config.SpecOf(plural)
		if err != nil {
			return "", err
		}
		rows := [][]string{{"field", "values", "default", "meaning"}}
		return table(appendFields(rows, "", reflect.TypeOf(spec), schema)), nil
	}
}

// appendFields adds a row for each field that has no fields itself, and for each list.
func appendFields(rows [][]string, path string, of reflect.Type, schema *apiextensionsv1.JSONSchemaProps) [][]string {
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		property := schema.Properties[name]
		inner := of.Field(i).Type
		items := &property
		switch inner.Kind() {
		case reflect.Pointer:
			inner = inner.Elem()
		case reflect.Slice:
			inner, items = inner.Elem(), property.Items.Schema
		default:
		}
		isStruct := len(items.Properties) > 0 && inner.Kind() == reflect.Struct && items.Properties["matchLabels"].Type == ""
		if !isStruct || items != &property {
			rows = append(rows, rowOf(path, name, &property, schema))
		}
		switch {
		case isStruct && items != &property:
			rows = appendFields(rows, path+name+"[].", inner, items)
		case isStruct:
			rows = appendFields(rows, path+name+".", inner, items)
		}
	}
	return rows
}

// absent is the end of a comment, which says what holds if a field is left out.
var absent = regexp.MustCompile(`\s*Absent: (.*)\.$`)

// ownName is the beginning of a comment. In a table the field stands before it.
var ownName = regexp.MustCompile(`^[a-z]\w+ ((is|are|says) )?`)

func rowOf(path, name string, property, parent *apiextensionsv1.JSONSchemaProps) []string {
	text, otherwise := strings.Join(strings.Fields(property.Description), " "), ""
	switch match := absent.FindStringSubmatch(text); {
	case match != nil:
		text, otherwise = strings.TrimSuffix(text, match[0]), match[1]
	case property.Default != nil:
		otherwise = strings.Trim(string(property.Default.Raw), `"`)
	case property.Type == "boolean":
		otherwise = "false"
	}
	values := strings.Join(valuesOf(name, property, parent), ", ")
	return []string{"`" + path + name + "`", values, otherwise, strings.ReplaceAll(ownName.ReplaceAllString(text, ""), "|", `\|`)}
}

// bound is a rule about the least value of a duration.
var bound = regexp.MustCompile(`duration\(self(?:\.(\w+))?\) (>=?) duration\('(\w+)'\)`)

// valuesOf says which values a field may have.
func valuesOf(name string, property, parent *apiextensionsv1.JSONSchemaProps) []string {
	var values []string
	for _, value := range property.Enum {
		values = append(values, "`"+strings.Trim(string(value.Raw), `"`)+"`")
	}
	if values != nil {
		return values
	}
	values = []string{property.Type}
	switch {
	case property.Properties["matchLabels"].Type != "":
		values[0] = "label selector"
	case property.AdditionalProperties != nil:
		values[0] = "map"
	case property.Type == "array":
		values[0] = "list"
	case property.Type == "boolean":
		return []string{"`true`", "`false`"}
	}
	for _, rule := range append(property.XValidations, parent.XValidations...) {
		if match := bound.FindStringSubmatch(rule.Rule); match != nil && (match[1] == "" || match[1] == name) {
			return []string{"duration", map[string]string{">": "above ", ">=": "at least "}[match[2]] + match[3]}
		}
	}
	if property.Minimum != nil {
		values = append(values, fmt.Sprintf("at least %g", *property.Minimum))
	}
	if property.Maximum != nil {
		values = append(values, fmt.Sprintf("at most %g", *property.Maximum))
	}
	if most := cmp.Or(property.MaxItems, property.MaxProperties); most != nil {
		values = append(values, fmt.Sprintf("at most %d items", *most))
	}
	if property.MaxLength != nil {
		values = append(values, fmt.Sprintf("at most %d characters", *property.MaxLength))
	}
	return values
}
