# A lane more is one entry of the catalogue. It is counted what that entry makes.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project             = "mailyard-test"
  oauth_client_id     = "1-a.apps.googleusercontent.com"
  oauth_client_secret = "a secret"
  keyset              = "AAAA"
  archive             = "tests/testdata/archive.zip"

  # terraform test hands optional ephemeral variables to the apply that it has not handed to the plan.
  connect_key   = ""
  alert_webhook = ""
}

run "as_it_is" {
  assert {
    condition     = length(google_cloudfunctions2_function.function) == 16 && !contains(keys(google_pubsub_topic.work), "message-labeled")
    error_message = "There are ${length(google_cloudfunctions2_function.function)} functions, not six lanes' and ten others; or the optional lane is on."
  }
}

run "one_entry_more" {
  variables {
    catalogue = "tests/testdata/catalogue-with-stars.json"
  }

  assert {
    condition = setsubtract(keys(google_cloudfunctions2_function.function), keys(run.as_it_is.functions)) == toset(["message-starred"])

    error_message = "The entry did not make exactly one function."
  }

  assert {
    condition = (
      length(google_pubsub_topic.work) == length(run.as_it_is.topics) + 1
      && length(google_pubsub_topic.dead_letter) == length(run.as_it_is.topics) + 1
      && length(google_pubsub_subscription.work) == length(run.as_it_is.topics) + 1
      && length(google_pubsub_subscription.inspect) == length(run.as_it_is.topics) + 1
      && length(google_pubsub_subscription.monitor) == length(run.as_it_is.topics) + 1
      && length(google_pubsub_topic_iam_member.forward_to) == length(run.as_it_is.topics) + 1
      && length(google_pubsub_subscription_iam_member.forward_from) == length(run.as_it_is.topics) + 1
    )
    error_message = "The entry did not make one of each: topic, dead-letter topic, three subscriptions, both rights of Pub/Sub's agent."
  }

  assert {
    condition = (
      google_pubsub_subscription.work["message-starred"].name == "gmail-message-starred-apply"
      && google_pubsub_subscription.work["message-starred"].retry_policy[0].minimum_backoff == "20s"
      && google_pubsub_subscription.work["message-starred"].dead_letter_policy[0].max_delivery_attempts == 50
      && google_cloudfunctions2_function.function["message-starred"].build_config[0].entry_point == "MessageStarred"
      && contains(keys(google_cloud_run_v2_service_iam_member.invoker), "message-starred push")
      && contains(keys(google_pubsub_topic_iam_member.publish), "ingest gmail-message-starred")
      && contains(keys(google_pubsub_topic_iam_member.publish), "message-starred gmail-message-added")
    )
    error_message = "The new lane is not delivered as its entry says, or nobody may publish on it or push to it."
  }

  assert {
    condition = (
      length([for t in jsondecode(google_monitoring_dashboard.mailyard.dashboard_json).mosaicLayout.tiles :
        t
        if strcontains(jsonencode(t), "gmail-message-starred")
      ])
      == 4
    )
    error_message = "The new lane has no row on the dashboard."
  }
}

run "optional_lane" {
  variables {
    optional_lanes = ["message-labeled"]
  }

  assert {
    condition = (
      google_cloudfunctions2_function.function["message-labeled"].build_config[0].entry_point == "MessageLabeled"
      && alltrue([for f in google_cloudfunctions2_function.function : f.service_config[0].environment_variables["MAILYARD_LANES"] == "message-labeled"])
    )
    error_message = "The optional lane is not on in Terraform and in every function."
  }
}
