// Kubernetes decodes the manifests that it is given as strictly as an API server with
// --field-validation=strict: a field that a type does not have, or one given twice, is an error.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// kinds are the types that the manifests use.
var kinds = map[string]func() any{
	"v1 ConfigMap":                       func() any { return new(corev1.ConfigMap) },
	"v1 Namespace":                       func() any { return new(corev1.Namespace) },
	"v1 Service":                         func() any { return new(corev1.Service) },
	"v1 ServiceAccount":                  func() any { return new(corev1.ServiceAccount) },
	"apps/v1 Deployment":                 func() any { return new(appsv1.Deployment) },
	"apps/v1 StatefulSet":                func() any { return new(appsv1.StatefulSet) },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":      func() any { return new(policyv1.PodDisruptionBudget) },
}

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Println(err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	var faults []error
	for {
		document := make([]byte, len(content)+1)
		n, err := documents.Read(document)
		if errors.Is(err, io.EOF) {
			return errors.Join(faults...)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := decode(document[:n]); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", path, err))
		}
	}
}

func decode(document []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kyaml.Unmarshal(document, &head); err != nil {
		return err
	}
	object, ok := kinds[head.APIVersion+" "+head.Kind]
	if !ok {
		return fmt.Errorf("%s %s is no kind that is known here", head.APIVersion, head.Kind)
	}
	text, err := kyaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, object()) // minds upper and lower case, as an API server does
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("%s: %w", head.Kind, err)
	}
	return nil
}
