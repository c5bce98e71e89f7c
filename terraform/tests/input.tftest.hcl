# What would be refused by Google at apply, or work otherwise than meant, is refused before, with a sentence
# that says what to write.

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

run "project_by_its_name" {
  command = plan

  variables {
    project = "Mailyard"
  }

  expect_failures = [var.project]
}

run "wrong_region" {
  command = plan

  variables {
    region = "europe-west99"
  }

  expect_failures = [var.region]
}

run "a_multi_region_for_functions" {
  command = plan

  variables {
    region = "us"
  }

  expect_failures = [var.region]
}

run "wrong_firestore_location" {
  command = plan

  variables {
    firestore_location = "moon"
  }

  expect_failures = [var.firestore_location]
}

run "wrong_database" {
  command = plan

  variables {
    database = "Mirror"
  }

  expect_failures = [var.database]
}

run "archive_not_built" {
  command = plan

  variables {
    archive = "tests/testdata/nothing.zip"
  }

  expect_failures = [var.archive]
}

run "empty_client_id" {
  command = plan

  variables {
    oauth_client_id = ""
  }

  expect_failures = [var.oauth_client_id]
}

run "empty_client_secret" {
  command = plan

  variables {
    oauth_client_secret = " "
  }

  expect_failures = [var.oauth_client_secret]
}

run "short_connect_key" {
  command = plan

  variables {
    connect_key = "hunter2"
  }

  expect_failures = [var.connect_key]
}

run "keyset_that_is_none" {
  command = plan

  variables {
    keyset = "not a keyset"
  }

  expect_failures = [var.keyset]
}

run "webhook_elsewhere" {
  command = plan

  variables {
    alert_webhook   = "https://example.com/hook"
    secret_versions = { alert_webhook = 1 }
  }

  expect_failures = [var.alert_webhook]
}

run "webhook_without_version" {
  command = plan

  variables {
    alert_webhook = "https://discord.com/api/webhooks/1/a"
  }

  expect_failures = [var.alert_webhook]
}

run "version_without_webhook" {
  command = plan

  variables {
    secret_versions = { alert_webhook = 1 }
  }

  expect_failures = [var.alert_webhook]
}

run "secret_version_zero" {
  command = plan

  variables {
    secret_versions = { keyset = 0 }
  }

  expect_failures = [var.secret_versions]
}

run "origin_with_a_path" {
  command = plan

  variables {
    connect_origins = ["https://app.example.com/back"]
  }

  expect_failures = [var.connect_origins]
}

run "public_url_over_http" {
  command = plan

  variables {
    public_url = "http://mail.example.com"
  }

  expect_failures = [var.public_url]
}

run "public_console" {
  command = plan

  variables {
    console_members = ["allUsers"]
  }

  expect_failures = [var.console_members]
}

run "unknown_optional_lane" {
  command = plan

  variables {
    optional_lanes = ["message-starred"]
  }

  expect_failures = [var.optional_lanes]
}

run "lane_that_is_not_optional" {
  command = plan

  variables {
    optional_lanes = ["message-read"]
  }

  expect_failures = [var.optional_lanes]
}

run "override_of_an_unknown_lane" {
  command = plan

  variables {
    delivery = { message-red = { instances = 1 } }
  }

  expect_failures = [var.delivery]
}

run "override_of_a_lane_that_is_off" {
  command = plan

  variables {
    delivery = { message-labeled = { instances = 1 } }
  }

  expect_failures = [var.delivery]
}

run "override_of_an_unknown_value" {
  command = plan

  variables {
    delivery = { message-read = { maxRetries = 5 } }
  }

  expect_failures = [var.delivery]
}

run "attempts_below_5" {
  command = plan

  variables {
    delivery = { message-read = { maxDeliveryAttempts = 4 } }
  }

  expect_failures = [var.delivery]
}

run "attempts_above_100" {
  command = plan

  variables {
    delivery = { message-read = { maxDeliveryAttempts = 101 } }
  }

  expect_failures = [var.delivery]
}

run "attempts_below_the_retries" {
  command = plan

  variables {
    delivery = { resync = { maxDeliveryAttempts = 6 } }
  }

  expect_failures = [var.delivery]
}

run "backoff_above_600" {
  command = plan

  variables {
    delivery = { message-read = { maxBackoffSeconds = 601 } }
  }

  expect_failures = [var.delivery]
}

run "backoff_that_shrinks" {
  command = plan

  variables {
    delivery = { message-read = { minBackoffSeconds = 500 } }
  }

  expect_failures = [var.delivery]
}

run "ack_deadline_below_10" {
  command = plan

  variables {
    delivery = { message-read = { ackDeadlineSeconds = 9 } }
  }

  expect_failures = [var.delivery]
}

run "ack_deadline_above_600" {
  command = plan

  variables {
    delivery = { message-read = { ackDeadlineSeconds = 601 } }
  }

  expect_failures = [var.delivery]
}

run "ack_deadline_below_the_catalogues" {
  command = plan

  variables {
    delivery = { message-read = { ackDeadlineSeconds = 20 } }
  }

  expect_failures = [var.delivery]
}

run "half_a_cpu_for_many_requests" {
  command = plan

  variables {
    delivery = { message-read = { cpu = 0.5 } }
  }

  expect_failures = [var.delivery]
}

run "half_an_instance" {
  command = plan

  variables {
    delivery = { message-read = { instances = 1.5 } }
  }

  expect_failures = [var.delivery]
}

run "retention_above_31_days" {
  command = plan

  variables {
    retention_days = 32
  }

  expect_failures = [var.retention_days]
}

run "content_in_part" {
  command = plan

  variables {
    content = "subjects"
  }

  expect_failures = [var.content]
}

run "digest_sender_without_a_host" {
  command = plan

  variables {
    digest_sender = "digests"
  }

  expect_failures = [var.digest_sender]
}

run "zone_that_is_none" {
  command = plan

  variables {
    digest_zone = "CET+1 "
  }

  expect_failures = [var.digest_zone]
}

run "hour_24" {
  command = plan

  variables {
    digest_hour = 24
  }

  expect_failures = [var.digest_hour]
}

run "channel_by_its_name" {
  command = plan

  variables {
    notification_channels = ["Ops"]
  }

  expect_failures = [var.notification_channels]
}

run "backlog_alert_below_a_retry" {
  command = plan

  variables {
    backlog_alert_seconds = 60
  }

  expect_failures = [var.backlog_alert_seconds]
}

run "half_a_cpu_is_enough_for_one_request" {
  command = plan

  variables {
    delivery = { resync = { cpu = 0.5 } }
  }

  assert {
    condition     = google_cloudfunctions2_function.function["resync"].service_config[0].available_cpu == "0.5"
    error_message = "Half a CPU is refused where it is enough."
  }
}

run "no_keyset_at_first" {
  command = plan

  variables {
    keyset = null
  }

  expect_failures = [terraform_data.keyset_given]
}
