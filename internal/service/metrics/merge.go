package metrics

import (
	"bytes"
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// Merge makes one text of those of several services, by their names, and says
// which of them answer; the text of one that does not is nil. A text that is
// none is left out.
func Merge(texts map[string][]byte) []byte {
	merged := map[string]*dto.MetricFamily{}
	up := &dto.MetricFamily{Name: proto.String(descServiceUp.name), Help: proto.String(descServiceUp.help), Type: dto.MetricType_GAUGE.Enum()}
	for _, service := range slices.Sorted(maps.Keys(texts)) {
		up.Metric = append(up.Metric, &dto.Metric{
			Label: []*dto.LabelPair{{Name: proto.String(labelService), Value: proto.String(service)}},
			Gauge: &dto.Gauge{Value: proto.Float64(boolGauge(texts[service] != nil))},
		})
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(texts[service]))
		if err != nil {
			continue
		}
		for name, f := range families {
			if have := merged[name]; have == nil {
				merged[name] = f
			} else if have.GetType() == f.GetType() {
				have.Metric = append(have.Metric, f.Metric...)
			}
		}
	}
	merged[descServiceUp.name] = up
	list := make([]*dto.MetricFamily, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		list = append(list, merged[name])
	}
	return encodeText(list)
}
