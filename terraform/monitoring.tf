# Watching: metrics from the one log line of each delivery, alerts, and a dashboard.

# Metrics. Every line has the labels consumer, lane, outcome and code; what else is counted is in it.

locals {
  log_metrics = {
    deliveries            = { description = "Deliveries, visits and runs", outcome = null, value = null }
    delivery_milliseconds = { description = "How long they took", outcome = null, value = "milliseconds" }
    open_letters          = { description = "Dead letters that are open, once a minute", outcome = "letters_open", value = "open" }
    oldest_letter_seconds = { description = "How long the oldest open dead letter has been dead", outcome = "letters_open", value = "oldest_seconds" }
    audit_drift           = { description = "Differences between a mailbox and its mirror, once an hour", outcome = "drifted", value = "drift" }
  }
}

resource "google_logging_metric" "line" {
  for_each = local.log_metrics

  project     = local.project_with["logging"]
  name        = "mailyard/${each.key}"
  description = each.value.description

  filter = join(" AND ", compact([
    "resource.type=\"cloud_run_revision\"",
    "labels.consumer:*",
    each.value.outcome == null ? "labels.outcome:*" : "labels.outcome=\"${each.value.outcome}\"",
    each.value.value == null ? "" : "jsonPayload.${each.value.value}:*",
  ]))

  value_extractor = each.value.value == null ? null : "EXTRACT(jsonPayload.${each.value.value})"

  label_extractors = { for label in ["consumer", "lane", "outcome", "code"] : label => "EXTRACT(labels.${label})" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = each.value.value == null ? "INT64" : "DISTRIBUTION"

    dynamic "labels" {
      for_each = toset(["consumer", "lane", "outcome", "code"])

      content {
        key = labels.value
      }
    }
  }

  # From a hundredth to some 10 million, each bucket twice the one before.
  dynamic "bucket_options" {
    for_each = each.value.value == null ? [] : ["doubling"]

    content {
      exponential_buckets {
        num_finite_buckets = 30
        growth_factor      = 2
        scale              = 0.01
      }
    }
  }
}

# Alerts. They look at Google's own metrics, which are there from the beginning, and of the log at the
# line itself: a policy on a metric that has not been written yet is refused.

locals {
  # The platform's time series that are watched, by what they are of.
  topic_series        = "resource.type=\"pubsub_topic\" AND metric.type=\"pubsub.googleapis.com/topic"
  subscription_series = "resource.type=\"pubsub_subscription\" AND metric.type=\"pubsub.googleapis.com/subscription"
  service_series      = "resource.type=\"cloud_run_revision\" AND metric.type=\"run.googleapis.com"

  work_subscriptions   = [for r in local.routes : r.subscription]
  pushed_subscriptions = concat(local.work_subscriptions, [for r in local.routes : "${r.dead_letter_topic}-monitor"])
  dead_letter_topics   = [for r in local.routes : r.dead_letter_topic]

  is_work        = "resource.labels.subscription_id=one_of(${join(",", formatlist("%q", local.work_subscriptions))})"
  is_pushed      = "resource.labels.subscription_id=one_of(${join(",", formatlist("%q", local.pushed_subscriptions))})"
  is_dead_letter = "resource.labels.topic_id=one_of(${join(",", formatlist("%q", local.dead_letter_topics))})"

  # Every condition compares one number for each group over a window: what is left out is as
  # condition_defaults says.
  condition_defaults = {
    aligner     = "ALIGN_DELTA"
    reducer     = "REDUCE_SUM"
    group_by    = []
    window      = 60 # seconds
    comparison  = "COMPARISON_GT"
    threshold   = 0
    duration    = 0 # seconds for which it has to hold; with none Google takes no word on missing data
    denominator = null
    if_missing  = "EVALUATION_MISSING_DATA_INACTIVE"
  }

  # How long a schedule may go without a success. 25 hours are the longest window that an alert can have.
  progress_windows = { tick = 10 * 60, renew = 3 * 60 * 60, digest = 25 * 60 * 60 }

  alerts = merge(
    {
      dead-letter = {
        title    = "A dead letter arrived"
        text     = "An event was given up. It is kept whole, with the reason, and can be brought back."
        playbook = "a-dead-letter-arrived"
        severity = "ERROR"
        all_of   = false
        conditions = {
          # Both those that the functions bury and those that Pub/Sub forwards are published there.
          "published on a dead-letter topic" = {
            filter   = "${local.topic_series}/send_request_count\" AND ${local.is_dead_letter}"
            group_by = ["resource.label.topic_id"]
          }
          "forwarded by Pub/Sub itself" = {
            filter   = "${local.subscription_series}/dead_letter_message_count\" AND ${local.is_work}"
            group_by = ["resource.label.subscription_id"]
          }
        }
      }

      backlog = {
        title    = "A lane is behind"
        text     = "The oldest message that no function has acknowledged is older than ${var.backlog_alert_seconds} seconds."
        playbook = "a-lane-is-behind"
        severity = "WARNING"
        all_of   = false
        conditions = {
          "oldest unacknowledged message" = {
            filter    = "${local.subscription_series}/oldest_unacked_message_age\" AND ${local.is_pushed}"
            group_by  = ["resource.label.subscription_id"]
            aligner   = "ALIGN_MAX"
            reducer   = "REDUCE_MAX"
            threshold = var.backlog_alert_seconds
            duration  = 300
          }
        }
      }

      push-errors = {
        title    = "Pushes are answered with errors"
        text     = "More than a fifth of a subscription's pushes have been answered with errors for a quarter of an hour. Nothing is lost: they come again."
        playbook = "pushes-are-answered-with-errors"
        severity = "WARNING"
        all_of   = false
        conditions = {
          "share of pushes that were not acknowledged" = {
            filter      = "${local.subscription_series}/push_request_count\" AND ${local.is_pushed} AND metric.labels.response_class!=\"ack\""
            denominator = "${local.subscription_series}/push_request_count\" AND ${local.is_pushed}"
            group_by    = ["resource.label.subscription_id"]
            window      = 300
            threshold   = 0.2
            duration    = 900
          }
        }
      }

      ingest = {
        title    = "Nothing is ingested"
        text     = "Gmail has published, and Ingest has acknowledged nothing for half an hour: mirrors stand still."
        playbook = "nothing-is-ingested"
        severity = "CRITICAL"
        all_of   = true
        conditions = {
          "Gmail has published" = {
            filter = "${local.topic_series}/send_request_count\" AND resource.labels.topic_id=\"${local.routes["ingest"].topic}\""
            window = 1800
          }
          "nothing was acknowledged" = {
            filter     = "${local.subscription_series}/push_request_count\" AND resource.labels.subscription_id=\"${local.routes["ingest"].subscription}\" AND metric.labels.response_class=\"ack\""
            window     = 1800
            comparison = "COMPARISON_LT"
            threshold  = 1
            duration   = 60
            if_missing = "EVALUATION_MISSING_DATA_ACTIVE"
          }
        }
      }
    },
    {
      for key, seconds in local.progress_windows : "${key}-progress" => {
        title    = "${local.functions[key].entry_point} stands still"
        text     = "${local.functions[key].entry_point} has not succeeded for ${seconds / 60} minutes."
        playbook = "a-schedule-stands-still"
        severity = key == "digest" ? "WARNING" : "ERROR"
        all_of   = false
        conditions = {
          "no success" = {
            filter     = "${local.service_series}/request_count\" AND resource.labels.service_name=\"${key}\" AND metric.labels.response_code_class=\"2xx\""
            window     = seconds
            comparison = "COMPARISON_LT"
            threshold  = 1
            duration   = 60
            if_missing = "EVALUATION_MISSING_DATA_ACTIVE"
          }
        }
      } if !local.schedules[key].paused
    },
  )

  log_alerts = {
    watch = {
      title    = "A watch is about to lapse"
      text     = "The watch of a mailbox ends within two days and could not be renewed. The line names the account and the reason."
      playbook = "a-watch-is-about-to-lapse"
      severity = "ERROR"
      outcome  = "watch_about_to_lapse"
    }
  }
}

resource "google_monitoring_alert_policy" "alert" {
  for_each = local.alerts

  project      = local.project_with["monitoring"]
  display_name = "Mailyard: ${each.value.title}"
  combiner     = each.value.all_of ? "AND" : "OR"
  severity     = each.value.severity

  notification_channels = var.notification_channels

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.text}\n\nWhat to do: [${each.value.title}](${var.playbook_url}#${each.value.playbook})"
  }

  dynamic "conditions" {
    for_each = { for name, c in each.value.conditions : name => merge(local.condition_defaults, c) }

    content {
      display_name = conditions.key

      condition_threshold {
        filter                  = conditions.value.filter
        comparison              = conditions.value.comparison
        threshold_value         = conditions.value.threshold
        duration                = "${conditions.value.duration}s"
        evaluation_missing_data = conditions.value.duration > 0 ? conditions.value.if_missing : null

        aggregations {
          alignment_period     = "${conditions.value.window}s"
          per_series_aligner   = conditions.value.aligner
          cross_series_reducer = conditions.value.reducer
          group_by_fields      = conditions.value.group_by
        }

        denominator_filter = conditions.value.denominator

        dynamic "denominator_aggregations" {
          for_each = conditions.value.denominator == null ? [] : ["same"]

          content {
            alignment_period     = "${conditions.value.window}s"
            per_series_aligner   = conditions.value.aligner
            cross_series_reducer = conditions.value.reducer
            group_by_fields      = conditions.value.group_by
          }
        }
      }
    }
  }
}

resource "google_monitoring_alert_policy" "log" {
  for_each = local.log_alerts

  project      = local.project_with["monitoring"]
  display_name = "Mailyard: ${each.value.title}"
  combiner     = "OR"
  severity     = each.value.severity

  notification_channels = var.notification_channels

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.text}\n\nWhat to do: [${each.value.title}](${var.playbook_url}#${each.value.playbook})"
  }

  alert_strategy {
    auto_close = "86400s"

    notification_rate_limit {
      period = "3600s"
    }
  }

  conditions {
    display_name = "the log has the line"

    condition_matched_log {
      filter           = "resource.type=\"cloud_run_revision\" AND labels.outcome=\"${each.value.outcome}\""
      label_extractors = { account = "EXTRACT(jsonPayload.account)", code = "EXTRACT(labels.code)" }
    }
  }
}

# The dashboard: a row for each route, then the mailboxes, the quota and what it costs.

locals {
  user_metric = "resource.type=\"cloud_run_revision\" AND metric.type=\"logging.googleapis.com/user/mailyard"

  route_charts = {
    for key, r in local.routes : key => [
      {
        title  = "deliveries a second", by = ["metric.label.response_class"]
        filter = "${local.subscription_series}/push_request_count\" AND resource.labels.subscription_id=\"${r.subscription}\""
      },
      {
        title   = "latency, 95th percentile", by = []
        aligner = "ALIGN_DELTA", reducer = "REDUCE_PERCENTILE_95"
        filter  = "${local.subscription_series}/push_request_latencies\" AND resource.labels.subscription_id=\"${r.subscription}\""
      },
      {
        title  = "failures by code", by = ["metric.label.code"]
        filter = "${local.user_metric}/deliveries\" AND metric.labels.consumer=\"${r.entry_point}\" AND metric.labels.code!=\"\""
      },
      {
        title   = "oldest message waiting", by = []
        aligner = "ALIGN_MAX", reducer = "REDUCE_MAX"
        filter  = "${local.subscription_series}/oldest_unacked_message_age\" AND resource.labels.subscription_id=\"${r.subscription}\""
      },
      {
        title   = "dead letters open", by = []
        aligner = "ALIGN_MAX", reducer = "REDUCE_SUM"
        filter  = "${local.subscription_series}/num_undelivered_messages\" AND resource.labels.subscription_id=\"${r.dead_letter_topic}-inspect\""
      },
    ]
  }

  other_charts = {
    mailboxes = [
      { title = "changes applied", by = ["metric.label.lane"], filter = "${local.user_metric}/deliveries\" AND metric.labels.lane!=\"\"" },
      { title = "watches", by = ["metric.label.outcome"], filter = "${local.user_metric}/deliveries\" AND metric.labels.consumer=\"Renew\"" },
      { title = "drift found by audits", by = [], aligner = "ALIGN_DELTA", reducer = "REDUCE_PERCENTILE_99", filter = "${local.user_metric}/audit_drift\"" },
      { title = "visits of Connect", by = ["metric.label.outcome"], filter = "${local.user_metric}/deliveries\" AND metric.labels.consumer=\"Connect\"" },
    ]
    quota = [
      {
        title  = "Gmail units a second", by = ["metric.label.quota_metric"]
        filter = "resource.type=\"consumer_quota\" AND metric.type=\"serviceruntime.googleapis.com/quota/rate/net_usage\" AND resource.labels.service=\"gmail.googleapis.com\""
      },
      {
        title  = "Gmail calls by answer", by = ["metric.label.response_code"]
        filter = "resource.type=\"consumed_api\" AND metric.type=\"serviceruntime.googleapis.com/api/request_count\" AND resource.labels.service=\"gmail.googleapis.com\""
      },
    ]
    cost = [
      { title = "CPU seconds billed", by = ["resource.label.service_name"], filter = "${local.service_series}/container/billable_instance_time\"" },
      { title = "documents read", by = [], filter = "resource.type=\"firestore.googleapis.com/Database\" AND metric.type=\"firestore.googleapis.com/document/read_ops_count\"" },
      { title = "documents written", by = [], filter = "resource.type=\"firestore.googleapis.com/Database\" AND metric.type=\"firestore.googleapis.com/document/write_ops_count\"" },
      { title = "bytes through Pub/Sub", by = ["resource.label.topic_id"], filter = "${local.topic_series}/byte_cost\"" },
    ]
  }

  # Ingest first, then the lanes as the catalogue has them, then what is beside.
  dashboard_rows = concat(
    [for key in concat(["ingest"], [for l in local.catalogue.lanes : l.key if contains(keys(local.lanes), l.key)], ["resync", "digest-send"]) : { title = key, charts = local.route_charts[key] }],
    [for key in ["mailboxes", "quota", "cost"] : { title = key, charts = local.other_charts[key] }],
  )
}

# Google leaves zeroes and empty lists out of what it answers, so the template does too: else every apply
# would change the dashboard.
resource "google_monitoring_dashboard" "mailyard" {
  project = local.project_with["monitoring"]

  dashboard_json = jsonencode(jsondecode(templatefile("dashboard.json.tftpl", {
    rows = [for row in local.dashboard_rows : merge(row, {
      charts = [for c in row.charts : merge({ aligner = "ALIGN_RATE", reducer = "REDUCE_SUM" }, c)]
    })]
  })))

  depends_on = [google_logging_metric.line]
}
