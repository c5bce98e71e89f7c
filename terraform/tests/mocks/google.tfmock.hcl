# What Google would answer, where the provider looks at its form. Everything else is random text.

override_resource {
  target = google_service_account.push
  values = {
    name  = "projects/mailyard-test/serviceAccounts/mailyard-push@mailyard-test.iam.gserviceaccount.com"
    email = "mailyard-push@mailyard-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.scheduler
  values = {
    email = "mailyard-scheduler@mailyard-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.delegation
  values = {
    name  = "projects/mailyard-test/serviceAccounts/gmail-delegation@mailyard-test.iam.gserviceaccount.com"
    email = "gmail-delegation@mailyard-test.iam.gserviceaccount.com"
  }
}

override_data {
  target = data.google_project.this
  values = {
    number = "123456789012"
  }
}
